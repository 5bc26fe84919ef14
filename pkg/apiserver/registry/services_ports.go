package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// servicePorts allocates the node ports and the health check node port.
func (t *taking) servicePorts(ctx context.Context) error {
	spec := &t.svc.Spec
	path := field.NewPath("spec")
	if external(t.svc) {
		if err := t.fixedPorts(ctx, path.Child("ports")); err != nil {
			return err
		}
	}
	if needsNodePorts(t.svc) {
		if err := t.freePorts(ctx); err != nil {
			return err
		}
	}
	if !needsHealthPort(t.svc) {
		return nil
	}
	if spec.HealthCheckNodePort != 0 {
		return t.fixedPort(ctx, spec.HealthCheckNodePort, path.Child("healthCheckNodePort"))
	}
	port, err := t.anyPort(ctx)
	spec.HealthCheckNodePort = port
	return err
}

// fixedPorts allocates the node ports that the user chose. Several protocols of one
// Service may share a number.
func (t *taking) fixedPorts(ctx context.Context, path *field.Path) error {
	for i, p := range t.svc.Spec.Ports {
		if p.NodePort == 0 {
			continue
		}
		if err := t.fixedPort(ctx, p.NodePort, path.Index(i).Child("nodePort")); err != nil {
			return err
		}
	}
	return nil
}

// fixedPort allocates port, which must be in the range. path is the field for
// validation errors.
func (t *taking) fixedPort(ctx context.Context, port int32, path *field.Path) error {
	if t.had.ports[port] {
		return nil
	}
	if r := t.a.ports; port < r.First || port > r.Last {
		return t.invalid(field.Invalid(path, port, fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %d-%d", r.First, r.Last)))
	}
	err := t.takePort(ctx, port)
	if errors.Is(err, errTaken) {
		return t.invalid(field.Invalid(path, port, "provided port is already allocated"))
	}
	return err
}

// freePorts allocates node ports for the ports that have none; TCP and UDP of one
// port share a number.
func (t *taking) freePorts(ctx context.Context) error {
	ports := t.svc.Spec.Ports
	byPort := map[int32]int32{}
	used := map[protocolPort]bool{}
	for _, p := range ports {
		if p.NodePort != 0 {
			byPort[p.Port] = p.NodePort
			used[protocolPort{p.Protocol, p.NodePort}] = true
		}
	}
	for i := range ports {
		p := &ports[i]
		if p.NodePort != 0 {
			continue
		}
		shared := byPort[p.Port]
		if shared == 0 || used[protocolPort{p.Protocol, shared}] {
			port, err := t.anyPort(ctx)
			if err != nil {
				return err
			}
			shared = port
		}
		p.NodePort, byPort[p.Port] = shared, shared
		used[protocolPort{p.Protocol, shared}] = true
	}
	return nil
}

type protocolPort struct {
	protocol corev1.Protocol
	port     int32
}

// takePort allocates port. It returns errTaken if another Service has it.
func (t *taking) takePort(ctx context.Context, port int32) error {
	if t.had.ports[port] {
		return nil
	}
	if t.dryRun {
		err := free(t.a.nodePorts.get(ctx, portName(port)))
		t.had.ports[port] = err == nil // the next port of this Service must get another one
		return err
	}
	holder, err := t.a.nodePorts.take(ctx, portName(port), t.claim())
	if err := t.sameOwner(holder, err); err != nil {
		return err
	}
	t.had.ports[port] = true
	t.newPorts = append(t.newPorts, port)
	return nil
}

// anyPort allocates a free port that this Service does not have, preferably from
// the upper part of the range.
func (t *taking) anyPort(ctx context.Context) (int32, error) {
	r := t.a.ports
	size := int64(r.Last-r.First) + 1
	low := band(size, 128)
	try := func(port int32) (bool, error) {
		if t.had.ports[port] {
			return false, nil
		}
		err := t.takePort(ctx, port)
		if errors.Is(err, errTaken) {
			return false, nil
		}
		return err == nil, err
	}
	for range randomTries {
		port := r.First + int32(low+rand.Int64N(size-low))
		if ok, err := try(port); ok || err != nil {
			return port, err
		}
	}
	taken, err := t.a.nodePorts.all(ctx)
	if err != nil {
		return 0, err
	}
	for i := range size {
		port := r.First + int32((i+low)%size)
		if _, ok := taken[portName(port)]; ok {
			continue
		}
		if ok, err := try(port); ok || err != nil {
			return port, err
		}
	}
	return 0, apierrors.NewInternalError(errors.New("failed to allocate a nodePort: range is full"))
}
