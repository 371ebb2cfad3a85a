"""Lifecycle calls: open, fork, reorder, truncate, close, describe, renew."""

import grpc

import oracle
import service
from attn.v1 import attention_pb2 as pb
from case import DIM_QK, PLAIN, Q_HEADS, Case, Item


class SequencesTest(Case):
    def setUp(self):
        super().setUp()
        self.model = self.declare()
        self.calls = self.service.sequences

    def fill(self, sequence, count):
        """Appends `count` tokens to every layer of `sequence`; the keys of layer 0."""
        keys = [oracle.Keys(PLAIN) for _ in range(3)]
        items = [self.append_item(sequence, keys[layer], layer, count) for layer in range(3)]
        self.assertFalse(self.attend(items).errors)
        return keys[0]

    def check_content(self, sequence, keys):
        q = self.numbers(2, Q_HEADS, DIM_QK)
        response = self.attend([Item(sequence, 0, q)])
        self.assertEqual(list(response.new_lens), [len(keys)])
        self.check_answer(response, [oracle.attend(keys, q)])

    def test_opened_sequences_are_described_and_closed_ones_are_stale(self):
        first, second = self.open(self.model, 2)
        self.assertGreaterEqual(min(first, second), 2**48)
        self.fill(first, 5)
        info = self.describe(first)
        self.assertEqual((info.sequence_id, info.model, info.owner),
                         (first, self.model.spec.name, self.owner))
        self.assertEqual((info.committed_len, list(info.layer_lens)), (5, [5, 5, 5]))
        self.assertGreater(info.num_pages, 0)
        self.assertGreater(info.lease_remaining_ms, 0)
        self.close([first])
        self.close([first])
        answer = self.calls.DescribeSequences(
            pb.DescribeSequencesRequest(sequence_ids=[first, second]))
        self.assertEqual([(e.item, e.status.reason) for e in answer.errors],
                         [(0, pb.REASON_STALE_SEQUENCE)])
        self.assertEqual(answer.sequences[1].sequence_id, second)

    def test_an_open_call_repeated_under_its_key_gives_the_same_sequences(self):
        request = pb.OpenSequencesRequest(
            model=self.model.spec.name, owner=self.owner, lease_ms=5000,
            request_key=self.random.getrandbits(64), items=[pb.OpenSequencesRequest.Item()])
        first = self.calls.OpenSequences(request)
        self.opened |= set(first.sequence_ids)
        self.assertEqual(first.lease_ms, 5000)
        self.assertEqual(self.calls.OpenSequences(request).sequence_ids, first.sequence_ids)

    def test_children_of_a_fork_go_their_own_ways(self):
        (parent,) = self.open(self.model)
        keys = self.fill(parent, 6)
        fork = self.calls.ForkSequences(pb.ForkSequencesRequest(items=[
            pb.ForkSequencesRequest.Item(parent_id=parent, num_children=2),
            pb.ForkSequencesRequest.Item(parent_id=parent, num_children=1, at_len=4)]))
        self.assertFalse(fork.errors)
        whole, grown, short = fork.child_ids
        self.opened |= set(fork.child_ids)
        grown_keys = keys.cut(6)
        self.assertFalse(self.attend([self.append_item(grown, grown_keys)]).errors)
        for sequence, content in ((parent, keys), (whole, keys), (grown, grown_keys),
                                  (short, keys.cut(4))):
            self.check_content(sequence, content)
        self.assertGreater(self.describe(whole).num_shared_pages, 0)

    def test_a_reorder_moves_content_all_at_once(self):
        ids = self.open(self.model, 3)
        keys = [self.fill(sequence, 3 + i) for i, sequence in enumerate(ids)]
        self.calls.ReorderSequences(pb.ReorderSequencesRequest(
            targets=[ids[0], ids[1]], sources=[ids[1], ids[0]]))
        for sequence, content in zip(ids, (keys[1], keys[0], keys[2])):
            self.check_content(sequence, content)
        self.assert_refused(
            grpc.StatusCode.INVALID_ARGUMENT, pb.REASON_INVALID, "targets[1]",
            self.calls.ReorderSequences,
            pb.ReorderSequencesRequest(targets=[ids[0], ids[0]], sources=[ids[1], ids[2]]))

    def test_a_truncated_sequence_has_its_first_tokens(self):
        (sequence,) = self.open(self.model)
        keys = self.fill(sequence, 7)
        answer = self.calls.TruncateSequences(pb.TruncateSequencesRequest(items=[
            pb.TruncateSequencesRequest.Item(sequence_id=sequence, len=3)]))
        self.assertFalse(answer.errors)
        self.assertEqual(list(answer.committed_lens), [3])
        self.check_content(sequence, keys.cut(3))
        too_long = self.calls.TruncateSequences(pb.TruncateSequencesRequest(items=[
            pb.TruncateSequencesRequest.Item(sequence_id=sequence, len=4)]))
        self.assertEqual(too_long.errors[0].status.reason, pb.REASON_INVALID)

    def test_a_lease_is_renewed(self):
        (sequence,) = self.open(self.model)
        renewed = self.calls.RenewLease(pb.RenewLeaseRequest(owner=self.owner, lease_ms=60000))
        self.assertEqual((renewed.lease_ms, renewed.num_sequences), (60000, 1))
        self.assertGreater(self.describe(sequence).lease_remaining_ms, 50000)

    def test_a_sequence_whose_owner_is_silent_expires(self):
        limits = self.service.server.GetServerInfo(pb.GetServerInfoRequest()).limits
        (sequence,) = self.open(self.model, lease_ms=limits.min_lease_ms)
        self.opened.clear()

        def removed():  # asks without naming the sequence, which would renew the lease
            try:
                self.service.models.RemoveModel(pb.RemoveModelRequest(name=self.model.spec.name))
            except grpc.RpcError as error:
                self.assertEqual(service.detail_of(error).reason, pb.REASON_MODEL_IN_USE)
                return False
            return True

        service.wait_until(removed, "lease expired")
        answer = self.calls.DescribeSequences(pb.DescribeSequencesRequest(sequence_ids=[sequence]))
        self.assertIn(answer.errors[0].status.reason,
                      (pb.REASON_STALE_SEQUENCE, pb.REASON_UNKNOWN_SEQUENCE))

    def test_ids_of_another_epoch_are_stale(self):
        (sequence,) = self.open(self.model)
        epoch = self.service.server.GetServerInfo(pb.GetServerInfoRequest()).server_epoch
        fork = pb.ForkSequencesRequest(items=[
            pb.ForkSequencesRequest.Item(parent_id=sequence, num_children=1)])
        describe = pb.DescribeSequencesRequest(sequence_ids=[sequence])
        for call, request in ((self.calls.ForkSequences, fork),
                              (self.calls.DescribeSequences, describe)):
            request.server_epoch = epoch ^ 1
            reasons = [error.status.reason for error in call(request).errors]
            self.assertEqual(reasons, [pb.REASON_STALE_SEQUENCE])
        describe.server_epoch = epoch
        self.assertFalse(self.calls.DescribeSequences(describe).errors)
