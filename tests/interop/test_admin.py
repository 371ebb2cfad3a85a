"""Looking on: metrics and open sequences."""

import grpc

import oracle
from attn.v1 import admin_pb2
from attn.v1 import attention_pb2 as pb
from case import LAYERS, Case


class AdminTest(Case):
    def test_stats_count_what_was_done(self):
        (sequence,) = self.open(self.declare())
        before = self.appended_tokens()
        self.attend([self.append_item(sequence, oracle.Keys(LAYERS[0]), 0, 7)])
        self.describe(sequence)  # by its answer all before it is counted
        self.assertEqual(self.appended_tokens(), before + 7)

    def appended_tokens(self):
        stats = self.service.admin.GetStats(admin_pb2.GetStatsRequest())
        (family,) = [f for f in stats.families if f.name == "attn_appended_tokens_total"]
        self.assertEqual(family.type, admin_pb2.METRIC_TYPE_COUNTER)
        return family.samples[0].value

    def test_sequences_are_listed_page_by_page(self):
        model = self.declare()
        ids = self.open(model, 5)
        self.attend([self.append_item(ids[0], oracle.Keys(LAYERS[0]), 0, 3)])
        listed, token = [], ""
        while True:
            page = self.service.admin.ListSequences(admin_pb2.ListSequencesRequest(
                owner=self.owner, max_sequences=2, page_token=token))
            listed += page.sequences
            token = page.next_page_token
            if not token:
                break
        self.assertEqual([s.sequence_id for s in listed], sorted(ids))
        self.assertEqual({s.model for s in listed}, {model.spec.name})
        (filled,) = [s for s in listed if s.sequence_id == ids[0]]
        self.assertEqual((filled.committed_len, filled.longest_len), (0, 3))

    def test_a_token_that_no_answer_gave_is_refused(self):
        self.assert_refused(grpc.StatusCode.INVALID_ARGUMENT, pb.REASON_INVALID, "page_token",
                            self.service.admin.ListSequences,
                            admin_pb2.ListSequencesRequest(page_token="next"))
