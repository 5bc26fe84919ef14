package csi

import (
	"context"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// inProcess is the connection to a driver of this process.
type inProcess struct {
	server  spec.NodeServer
	driver  string
	metrics *Metrics
	timeout time.Duration // of calls
}

// Invoke calls a method of the driver. NodeStageVolume has no timeout: to make or to check
// the file system of a large disk takes long, and must not be interrupted. The driver limits
// what may wait for a device or a server.
func (p inProcess) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	timeout := p.timeout
	if method == spec.Node_NodeStageVolume_FullMethodName {
		timeout = 0
	}
	return p.metrics.intercept(p.driver, timeout)(ctx, method, args, reply, nil, p.invoke, opts...)
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
