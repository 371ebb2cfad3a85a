"""Whole requests that are refused: status details parsed by a client of another language, unknown
fields, bytes that are no message."""

import grpc

from attn.v1 import attention_pb2 as pb
from case import DIM_QK, Q_HEADS, Case, Item, make_attend

UNKNOWN_FIELD = b"\xb8\x3e\x01"  # field 999, varint 1
HINT_FIELD = b"\xc0\x3e\x01"  # field 1000


class RefusalsTest(Case):
    def test_the_details_of_a_failed_call_name_field_and_values(self):
        (sequence,) = self.open(self.declare())
        request = make_attend([Item(sequence, 0, self.numbers(1, Q_HEADS, DIM_QK))])
        request.q.raw = request.q.raw[:-1]
        size = Q_HEADS * DIM_QK * 4
        detail = self.assert_refused(grpc.StatusCode.INVALID_ARGUMENT, pb.REASON_INVALID, "q.raw",
                                     self.service.attention.Attend, request)
        self.assertIn(str(size - 1), detail.message)
        self.assertIn(str(size), detail.message)
        self.assertEqual(detail.retry_after_ms, 0)

    def test_unknown_fields_are_refused_and_hints_are_not(self):
        (sequence,) = self.open(self.declare())
        requests = [
            (self.service.server.GetServerInfo, pb.GetServerInfoRequest(), ""),
            (self.service.models.ListModels, pb.ListModelsRequest(), ""),
            (self.service.sequences.DescribeSequences,
             pb.DescribeSequencesRequest(sequence_ids=[sequence]), "describe."),
            (self.service.attention.Attend,
             make_attend([Item(sequence, 0, self.numbers(1, Q_HEADS, DIM_QK))]), "attend."),
        ]
        for call, request, path in requests:
            wire = request.SerializeToString()
            call(type(request).FromString(wire + HINT_FIELD))
            self.assert_refused(grpc.StatusCode.UNIMPLEMENTED, pb.REASON_UNSUPPORTED,
                                path + "999", call, type(request).FromString(wire + UNKNOWN_FIELD))

    def test_unknown_enum_values_and_flags_are_refused(self):
        (sequence,) = self.open(self.declare())
        request = make_attend([Item(sequence, 0, self.numbers(1, Q_HEADS, DIM_QK))])
        request.out_dtype = 99
        self.assert_refused(grpc.StatusCode.UNIMPLEMENTED, pb.REASON_UNSUPPORTED, "out_dtype",
                            self.service.attention.Attend, request)
        request.out_dtype = pb.DATA_TYPE_UNSPECIFIED
        request.flags[0] = 1 << 20
        answer = self.service.attention.Attend(request)
        self.assertEqual(list(answer.item_reasons), [pb.REASON_UNSUPPORTED])
        self.assertEqual(answer.errors[0].status.field, "flags[0]")

    def test_bytes_that_are_no_message_are_invalid(self):
        call = self.service.channel.unary_unary("/attn.v1.Attention/Attend")
        self.assert_refused(grpc.StatusCode.INVALID_ARGUMENT, pb.REASON_INVALID, "", call,
                            b"\xff" * 40)

    def test_a_method_that_does_not_exist_is_unimplemented(self):
        call = self.service.channel.unary_unary("/attn.v1.Attention/Guess")
        with self.assertRaises(grpc.RpcError) as caught:
            call(b"")
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
