package csi

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// inProcess is the connection to a driver of this process.
type inProcess struct {
	server    spec.NodeServer
	intercept grpc.UnaryClientInterceptor
}

// Invoke calls a method of the driver.
func (p inProcess) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return p.intercept(ctx, method, args, reply, nil, p.invoke, opts...)
}

func (p inProcess) invoke(ctx context.Context, method string, args, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
	for _, m := range spec.Node_ServiceDesc.Methods {
		if method != "/"+spec.Node_ServiceDesc.ServiceName+"/"+m.MethodName {
			continue
		}
		read := func(in any) error { proto.Merge(in.(proto.Message), args.(proto.Message)); return nil }
		out, err := m.Handler(p.server, ctx, read, nil)
		if err == nil {
			proto.Merge(reply.(proto.Message), out.(proto.Message))
		}
		return err
	}
	return status.Errorf(codes.Unimplemented, "%s", method)
}

// NewStream fails: drivers have no streams.
func (inProcess) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "drivers have no streams")
}
