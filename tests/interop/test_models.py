"""Server info, and models: declared, found, listed, refused, removed."""

import grpc

from attn.v1 import attention_pb2 as pb
from case import DIM_QK, DIM_V, KV_HEADS, LAYERS, Case, make_spec


class ModelsTest(Case):
    def test_info_tells_epoch_limits_and_types(self):
        info = self.service.server.GetServerInfo(pb.GetServerInfoRequest())
        self.assertTrue(info.version)
        self.assertNotEqual(info.server_epoch, 0)
        self.assertIn(pb.DATA_TYPE_FLOAT32, info.activation_dtypes)
        self.assertIn(pb.DATA_TYPE_BFLOAT16, info.kv_dtypes)
        self.assertEqual(list(info.page_sizes), sorted(set(info.page_sizes)))
        self.assertGreater(info.limits.max_message_bytes, 1 << 20)
        self.assertGreater(info.limits.max_items_per_request, 0)
        self.assertGreater(info.limits.max_in_flight_per_stream, 0)
        self.assertIn(pb.FEATURE_ROW_INVARIANT, info.features)

    def test_a_declared_model_comes_back_with_its_defaults_filled_in(self):
        spec = make_spec("interop-%016x" % self.random.getrandbits(64), "bfloat16")
        model = self.declare(spec=spec)
        self.assertEqual(len(model.fingerprint), 32)
        self.assertEqual(model.kv_bytes_per_token, len(LAYERS) * KV_HEADS * (DIM_QK + DIM_V) * 2)
        self.assertEqual(model.spec.kv_dtype, pb.DATA_TYPE_BFLOAT16)
        self.assertEqual(model.spec.layer_groups[0].softmax_scale, 0.25)
        self.assertGreater(model.spec.page_size, 0)
        got = self.service.models.GetModel(pb.GetModelRequest(name=spec.name)).model
        self.assertEqual(got, model)

        again = self.service.models.DeclareModel(pb.DeclareModelRequest(spec=spec))
        self.assertTrue(again.already_declared)
        self.assertEqual(again.model, model)

    def test_the_name_of_a_model_cannot_get_another_spec(self):
        spec = self.declare().spec
        spec.layer_groups[1].window.left += 1
        detail = self.assert_refused(
            grpc.StatusCode.ALREADY_EXISTS, pb.REASON_MODEL_EXISTS,
            "spec.layer_groups[1].window.left", self.service.models.DeclareModel,
            pb.DeclareModelRequest(spec=spec))
        self.assertIn("window", detail.message)

    def test_models_are_listed_page_by_page(self):
        names = {self.declare().spec.name for _ in range(3)}
        listed, token = [], ""
        while True:
            page = self.service.models.ListModels(
                pb.ListModelsRequest(max_models=2, page_token=token))
            self.assertLessEqual(len(page.models), 2)
            listed += [model.spec.name for model in page.models]
            token = page.next_page_token
            if not token:
                break
        self.assertEqual(len(listed), len(set(listed)))
        self.assertLessEqual(names, set(listed))

    def test_a_model_in_use_stays_and_a_removed_one_is_unknown(self):
        model = self.declare()
        ids = self.open(model)
        remove = pb.RemoveModelRequest(name=model.spec.name)
        self.assert_refused(grpc.StatusCode.FAILED_PRECONDITION, pb.REASON_MODEL_IN_USE, "name",
                            self.service.models.RemoveModel, remove)
        self.close(ids)
        self.service.models.RemoveModel(remove)
        self.assert_refused(grpc.StatusCode.NOT_FOUND, pb.REASON_UNKNOWN_MODEL, "name",
                            self.service.models.GetModel, pb.GetModelRequest(name=model.spec.name))

    def test_a_feature_that_is_not_built_is_refused_by_name(self):
        spec = make_spec("interop-alibi")
        spec.layer_groups[0].alibi_slopes[:] = [0.5] * spec.layer_groups[0].num_q_heads
        self.assert_refused(grpc.StatusCode.UNIMPLEMENTED, pb.REASON_UNSUPPORTED,
                            "spec.layer_groups[0].alibi_slopes", self.service.models.DeclareModel,
                            pb.DeclareModelRequest(spec=spec))
