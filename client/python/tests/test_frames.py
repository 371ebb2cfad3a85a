"""Messages made by hand are those that protobuf makes."""

import os
import subprocess
import tempfile
import unittest

import support  # noqa: F401
from attnserve import _frames, _wire, errors


class FramesTest(unittest.TestCase):
    def test_joined_requests_are_what_protobuf_reads(self):
        for size in (0, 1, 127, 128, 300, 70_000):
            head = _wire.AttendRequest(sequence_ids=[1 << 50], layers=[3], q_lens=[2])
            data = _frames.join_attend(head.SerializeToString(), 3, q=memoryview(b"q" * size),
                                       k=memoryview(b"kk"), v=b"")
            read = _wire.AttendRequest.FromString(data)
            self.assertEqual(read.q.raw, b"q" * size)
            self.assertEqual((read.k.raw, read.k.dtype, read.HasField("v")), (b"kk", 3, False))
            self.assertEqual(list(read.layers), [3])

    def test_split_answers_are_what_protobuf_wrote(self):
        response = _wire.AttendResponse(new_lens=[5, 300], item_replayed=[False, True])
        response.timing.queue_ns = 1 << 40
        response.out.dtype, response.out.raw = 1, bytes(range(256)) * 9
        response.out.shape.extend([2, 4, 300])
        rest, out, lse = _frames.split_attend(response.SerializeToString())
        self.assertEqual(out[:2], (1, (2, 4, 300)))
        self.assertEqual(bytes(out[2]), response.out.raw)
        self.assertIsNone(lse)
        response.ClearField("out")
        self.assertEqual(rest, response)

    def test_stream_envelopes(self):
        request = _wire.AttendRequest(layers=[7]).SerializeToString()
        read = _wire.AttendStreamRequest.FromString(_frames.join_stream(9, 8, request, 1000))
        self.assertEqual((read.request_id, read.timeout_us, list(read.attend.layers)),
                         (9, 1000, [7]))
        answer = _wire.AttendStreamResponse(request_id=9)
        answer.attend.new_lens.append(4)
        rest, attend = _frames.split_stream(answer.SerializeToString())
        self.assertEqual(rest.request_id, 9)
        self.assertEqual(list(_wire.AttendResponse.FromString(bytes(attend)).new_lens), [4])

    def test_every_reason_has_an_exception(self):
        for number, name in _wire.REASONS.items():
            if name in ("UNSPECIFIED", "OK"):
                continue
            error = errors.from_status(_wire.Status(reason=number, message="f: got 1, want 2",
                                                    field="f"))
            self.assertEqual((error.reason, error.field, error.got, error.want),
                             (name, "f", "1", "2"))
            self.assertNotEqual(type(error), errors.AttnError)

    def test_the_descriptors_are_those_of_the_proto_files(self):
        here = os.path.dirname(os.path.abspath(__file__))
        with tempfile.NamedTemporaryFile("r") as made:
            subprocess.run([os.path.join(here, "..", "generate_descriptors.sh"), made.name],
                           check=True)
            with open(os.path.join(here, "..", "src", "attnserve", "_descriptors.py")) as kept:
                self.assertEqual(made.read(), kept.read(), "run generate_descriptors.sh")


if __name__ == "__main__":
    unittest.main()
