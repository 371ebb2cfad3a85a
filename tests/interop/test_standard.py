"""The services that every gRPC tool knows: health and reflection."""

import grpc
from google.protobuf import descriptor_pb2

from attn.v1 import attention_pb2 as pb
from case import Case
from standard import health_pb2, reflection_pb2

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class HealthTest(Case):
    def check(self, name):
        return self.service.health.Check(health_pb2.HealthCheckRequest(service=name)).status

    def test_process_data_path_and_each_model_are_serving(self):
        model = "attn.model." + self.declare().spec.name
        for name in ("", "attn.v1.Attention", model):
            self.assertEqual(self.check(name), SERVING, name)

    def test_an_unknown_name_is_not_found(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.check("attn.model.of-nobody")
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_a_watch_tells_when_a_model_is_removed(self):
        name = self.declare().spec.name
        watch = self.service.health.Watch(
            health_pb2.HealthCheckRequest(service="attn.model." + name))
        self.assertEqual(next(watch).status, SERVING)
        self.service.models.RemoveModel(pb.RemoveModelRequest(name=name))
        self.assertEqual(next(watch).status, NOT_SERVING)
        watch.cancel()


class ReflectionTest(Case):
    def ask(self, **request):
        calls = self.service.reflection.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(**request)]))
        (answer,) = calls
        return answer

    def listed(self):
        answer = self.ask(list_services="*")
        return {service.name for service in answer.list_services_response.service}

    def test_every_service_of_the_proto_file_is_listed(self):
        ours = {s.full_name for s in pb.DESCRIPTOR.services_by_name.values()}
        self.assertLessEqual(ours | {"grpc.health.v1.Health"}, self.listed())

    def described(self, service):
        """Its methods as "/package.Service/Method"; none where gRPC has no descriptor."""
        files = self.ask(file_containing_symbol=service).file_descriptor_response
        return {
            "/%s/%s" % (service, method.name)
            for raw in files.file_descriptor_proto
            for file in [descriptor_pb2.FileDescriptorProto.FromString(raw)]
            for candidate in file.service
            if "%s.%s" % (file.package, candidate.name) == service
            for method in candidate.method
        }

    def test_no_listed_service_and_method_is_without_stubs_here(self):
        # Else one could be added that no test calls.
        stubs = self.service.methods
        for service in self.listed():
            self.assertIn(service, {method.split("/")[1] for method in stubs})
            self.assertLessEqual(self.described(service), stubs)
        self.assertIn("/attn.v1.Attention/Attend", self.described("attn.v1.Attention"))
