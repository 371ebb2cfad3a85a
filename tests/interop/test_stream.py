"""AttendStream: many requests in flight, lifecycle inside the stream, aliases, cancellation, time
limits, flow, half-close."""

import queue
import time

import grpc

import oracle
import service
from attn.v1 import attention_pb2 as pb
from case import DIM_QK, DIM_V, KV_HEADS, LAYERS, Q_HEADS, Case, Item, make_attend

# One request that takes the server about this long: what is sent behind it arrives long before it is
# done, however busy the machine is.
WORK_SECONDS = 2
WORK_KEYS = 32768
WORK_ITEMS = 16
WORK_ROWS_LIMIT = 512  # of an item


class Stream:
    """Requests go out as they are sent; answers are read one by one."""

    def __init__(self, attention):
        self._requests = queue.Queue()
        self.call = attention.AttendStream(iter(self._requests.get, None))
        self._last_id = 0
        self._early = {}

    def send(self, request_id=None, **content):
        """The id it was sent under. `content`: fields of AttendStreamRequest."""
        self._last_id = request_id or self._last_id + 1
        self._requests.put(pb.AttendStreamRequest(request_id=self._last_id, **content))
        return self._last_id

    def send_message(self, message):
        self._requests.put(message)

    def read(self):
        return next(self.call)

    def wait_until_received(self):
        """Until the server has all that was sent: it answers a cancellation when it arrives."""
        fence = self.send(cancel=pb.CancelRequest())
        for answer in self.call:
            if answer.request_id == fence:
                return
            self._early[answer.request_id] = answer

    def finish(self):
        """Half-closes; the answers that read() has not returned, by request id."""
        self._requests.put(None)
        answers = self._early
        for answer in self.call:
            assert answer.request_id not in answers, "two answers to %d" % answer.request_id
            answers[answer.request_id] = answer
        assert self.call.code() == grpc.StatusCode.OK, self.call.details()
        return answers


class StreamTest(Case):
    def setUp(self):
        super().setUp()
        self.model = self.declare()
        self.stream = Stream(self.service.attention)

    def tearDown(self):
        self.stream.call.cancel()
        super().tearDown()

    def open_request(self, *aliases, close_with_stream=True):
        return pb.OpenSequencesRequest(
            model=self.model.spec.name, owner=self.owner, close_with_stream=close_with_stream,
            items=[pb.OpenSequencesRequest.Item(alias=alias) for alias in aliases])

    def test_many_requests_in_flight_get_one_right_answer_each_after_half_close(self):
        ids = self.open(self.model, 4)
        keys = {(s, l): oracle.Keys(LAYERS[l]) for s in ids for l in range(len(LAYERS))}
        wanted = {}
        for step in range(12):
            for (sequence, layer), content in keys.items():
                item = self.append_item(sequence, content, layer)
                request_id = self.stream.send(attend=make_attend([item]))
                wanted[request_id] = oracle.attend(content, item.q)
        answers = self.stream.finish()
        self.assertEqual(set(answers), set(wanted))
        for request_id, answer in answers.items():
            self.check_answer(answer.attend, [wanted[request_id]])
        self.assertEqual({s: self.describe(s).committed_len for s in ids}, {s: 12 for s in ids})

    def test_flow_comes_with_the_first_answer_and_names_the_limit(self):
        (sequence,) = self.open(self.model)
        keys = oracle.Keys(LAYERS[0])
        limits = self.service.server.GetServerInfo(pb.GetServerInfoRequest()).limits
        self.stream.send(attend=make_attend([self.append_item(sequence, keys)]))
        flow = self.stream.read().flow
        self.assertEqual(flow.requests_allowed, limits.max_in_flight_per_stream)
        self.assertGreater(flow.bytes_allowed, 0)
        self.assertFalse(flow.draining)
        self.stream.send(attend=make_attend([self.append_item(sequence, keys)]))
        self.assertFalse(self.stream.read().HasField("flow"))
        self.assertEqual(self.stream.finish(), {})

    def test_a_prepared_list_opens_forks_reorders_truncates_renews_and_closes_by_alias(self):
        keys = oracle.Keys(LAYERS[0])
        append = self.append_item(5, keys, 0, 6)
        q = self.numbers(1, Q_HEADS, DIM_QK)
        send, item = self.stream.send, pb.ForkSequencesRequest.Item
        opened = send(open=self.open_request(5, 6))
        appended = send(attend=make_attend([append]))
        forked = send(fork=pb.ForkSequencesRequest(
            items=[item(parent_id=5, num_children=2, first_alias=8, at_len=0)]))
        moved = send(reorder=pb.ReorderSequencesRequest(targets=[6], sources=[5]))
        cut = send(truncate=pb.TruncateSequencesRequest(
            items=[pb.TruncateSequencesRequest.Item(sequence_id=5, len=0)]))
        whole = send(attend=make_attend([Item(6, 0, q)]))
        empty = send(attend=make_attend([Item(alias, 0, q) for alias in (5, 8, 9)]))
        renewed = send(renew=pb.RenewLeaseRequest(owner=self.owner))
        closed = send(close=pb.CloseSequencesRequest(sequence_ids=[5, 6, 8, 9]))
        answers = self.stream.finish()
        self.assertEqual(len(answers), 9)
        self.assertEqual(len(answers[opened].open.sequence_ids), 2)
        self.check_answer(answers[appended].attend, [oracle.attend(keys, append.q)])
        self.assertEqual(len(answers[forked].fork.child_ids), 2)
        self.assertTrue(answers[moved].HasField("reorder"))
        self.assertFalse(answers[cut].truncate.errors)
        self.check_answer(answers[whole].attend, [oracle.attend(keys, q)])
        nothing = oracle.attend(oracle.Keys(LAYERS[0]), q)
        self.check_answer(answers[empty].attend, [nothing] * 3)
        self.assertGreaterEqual(answers[renewed].renew.num_sequences, 2)  # it waits for no sequence
        self.assertTrue(answers[closed].HasField("close"))
        self.assertFalse(answers[closed].close.errors)

    def test_an_alias_is_known_in_its_own_stream_only(self):
        self.stream.send(open=self.open_request(5))
        self.assertFalse(self.stream.read().open.errors)
        other = Stream(self.service.attention)
        request_id = other.send(attend=make_attend([Item(5, 0, self.numbers(1, Q_HEADS, DIM_QK))]))
        answer = other.finish()[request_id]
        self.assertEqual(list(answer.attend.item_reasons), [pb.REASON_UNKNOWN_SEQUENCE])
        self.stream.finish()

    def test_what_closes_with_the_stream_is_gone_after_it(self):
        self.stream.send(open=self.open_request(5))
        (sequence,) = self.stream.read().open.sequence_ids
        self.assertEqual(self.describe(sequence).sequence_id, sequence)
        self.stream.finish()
        answer = self.service.sequences.DescribeSequences(
            pb.DescribeSequencesRequest(sequence_ids=[sequence]))
        self.assertEqual(answer.errors[0].status.reason, pb.REASON_STALE_SEQUENCE)

    def test_bad_requests_are_answered_and_the_stream_goes_on(self):
        (sequence,) = self.open(self.model)
        read = make_attend([Item(sequence, 0, self.numbers(1, Q_HEADS, DIM_QK))])
        self.stream.send_message(pb.AttendStreamRequest(attend=read))
        nothing = self.stream.send()
        compute = self.stream.send(compute=pb.ComputeRequest())
        unknown = pb.AttendStreamRequest.FromString(
            pb.AttendStreamRequest(request_id=100, attend=read).SerializeToString()
            + b"\x88\x01\x01")  # field 17
        self.stream.send_message(unknown)
        good = self.stream.send(request_id=101, attend=read)
        answers = self.stream.finish()
        refusals = {i: (a.status.reason, a.status.field) for i, a in answers.items() if i != good}
        self.assertEqual(refusals, {
            0: (pb.REASON_INVALID, "request_id"),
            nothing: (pb.REASON_INVALID, "request"),
            compute: (pb.REASON_UNSUPPORTED, "compute"),
            100: (pb.REASON_UNSUPPORTED, "17"),
        })
        self.assertTrue(answers[good].HasField("attend"))

    def test_a_request_whose_time_has_passed_is_not_run(self):
        (sequence,) = self.open(self.model)
        keys = oracle.Keys(LAYERS[0])
        late = self.stream.send(
            timeout_us=1, attend=make_attend([self.append_item(sequence, keys)]))
        answer = self.stream.finish()[late].attend
        self.assertEqual(list(answer.item_reasons), [pb.REASON_DEADLINE])
        self.assertEqual(list(answer.new_lens), [0])
        self.assertEqual(self.describe(sequence).layer_lens[0], 0)


class CancelTest(Case):
    """Behind a long read of the same layer."""

    def setUp(self):
        super().setUp()
        self.stream = Stream(self.service.attention)
        (self.sequence,) = self.open(self.declare())

    def tearDown(self):
        self.stream.call.cancel()
        super().tearDown()

    def repeated_rows(self, rows, heads, dim):
        """Random rows that repeat themselves, as a tensor."""
        block = oracle.pack(self.numbers(16, heads, dim), "float32")
        return pb.Tensor(dtype=pb.DATA_TYPE_FLOAT32, raw=block * (rows // 16))

    def send_work(self):
        """Its request id. The server has it when this returns."""
        self.stream.send(attend=pb.AttendRequest(
            sequence_ids=[self.sequence], layers=[0], expected_lens=[0], q_lens=[0],
            kv_new_lens=[WORK_KEYS], append_tokens=[1],
            k=self.repeated_rows(WORK_KEYS, KV_HEADS, DIM_QK),
            v=self.repeated_rows(WORK_KEYS, KV_HEADS, DIM_V)))
        self.assertEqual(list(self.stream.read().attend.new_lens), [WORK_KEYS])
        work = self.send_read(self.rows_of_work())
        self.stream.wait_until_received()
        return work

    def send_read(self, rows):
        """Of so many rows an item, each over all keys."""
        return self.stream.send(attend=pb.AttendRequest(
            sequence_ids=[self.sequence] * WORK_ITEMS, layers=[0], q_lens=[rows],
            q=self.repeated_rows(rows * WORK_ITEMS, Q_HEADS, DIM_QK)))

    def rows_of_work(self):
        """As many rows an item as take WORK_SECONDS, by a read of two: builds differ widely."""
        started = time.monotonic()
        probe = self.send_read(2)
        self.assertEqual(self.stream.read().request_id, probe)
        rows = int(2 * WORK_SECONDS / (time.monotonic() - started))
        return min(max(rows, 4), WORK_ROWS_LIMIT)

    def token_item(self):
        item = self.append_item(self.sequence, oracle.Keys(LAYERS[0]))
        item.expected_len = WORK_KEYS
        return item

    def check_nothing_appended(self):
        self.assertEqual(self.describe(self.sequence).layer_lens[0], WORK_KEYS)

    def cancel(self, *ids):
        return self.stream.send(cancel=pb.CancelRequest(request_ids=ids))

    def test_a_cancelled_request_that_waits_is_not_run(self):
        work = self.send_work()
        waiting = self.stream.send(attend=make_attend([self.token_item()]))
        cancel = self.cancel(waiting, work, 7777)
        answers = self.stream.finish()
        self.assertEqual(set(answers), {work, waiting, cancel})
        self.assertTrue(answers[cancel].HasField("cancel"))
        self.assertEqual(list(answers[waiting].attend.item_reasons), [pb.REASON_CANCELLED])
        reasons = answers[work].attend.item_reasons
        self.assertLessEqual(set(reasons), {pb.REASON_OK, pb.REASON_CANCELLED})
        self.assertIn(pb.REASON_CANCELLED, reasons)
        self.check_nothing_appended()

    def test_an_id_in_flight_cannot_be_used_again(self):
        work = self.send_work()
        self.stream.send(request_id=work, attend=make_attend([self.token_item()]))
        refused = self.stream.read()
        self.assertEqual((refused.request_id, refused.status.field), (work, "request_id"))
        self.cancel(work)
        self.stream.finish()
        self.check_nothing_appended()

    def test_a_unary_call_that_its_client_cancels_appends_nothing(self):
        self.send_work()
        call = self.service.attention.Attend.future(make_attend([self.token_item()]))
        call.cancel()
        self.assertTrue(call.cancelled())
        self.stream.finish()  # by then the server knows
        self.check_nothing_appended()

    def test_a_unary_call_past_its_deadline_appends_nothing(self):
        work = self.send_work()
        with self.assertRaises(grpc.RpcError) as caught:
            self.service.attention.Attend(make_attend([self.token_item()]), timeout=0.02)
        # The server refuses at once what it knows to come too late.
        if caught.exception.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
            detail = service.detail_of(caught.exception)
            self.assertEqual(detail.reason, pb.REASON_QUEUE_FULL)
            self.assertGreater(detail.retry_after_ms, 0)
        else:
            self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.cancel(work)
        self.stream.finish()
        self.check_nothing_appended()

    def test_a_cancelled_stream_closes_what_was_to_close_with_it(self):
        stream = Stream(self.service.attention)
        stream.send(open=pb.OpenSequencesRequest(
            model=self.declare().spec.name, owner=self.owner, close_with_stream=True,
            items=[pb.OpenSequencesRequest.Item()]))
        (sequence,) = stream.read().open.sequence_ids
        stream.call.cancel()
        request = pb.DescribeSequencesRequest(sequence_ids=[sequence])
        service.wait_until(
            lambda: self.service.sequences.DescribeSequences(request).errors, "sequence closed")
