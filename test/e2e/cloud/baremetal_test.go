package cloud

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"podium/test/e2e/docked"
)

// The same machines with the baremetal provider: while the test runs, the control plane's
// cloud-controller-manager reads its addresses from a file.
func TestBareMetal(t *testing.T) {
	first, second := the.metal(t)
	front := the.balancer(t, "metal", "Cluster", worker1, worker2)
	if front.address != first {
		t.Errorf("the first address of the pool is %s, the Service has %s", first, front.address)
	}
	front.answers(30 * time.Second)

	const asking = `
apiVersion: v1
kind: Service
metadata: {name: asking}
spec: {type: LoadBalancer, loadBalancerIP: %q, selector: {app: metal}, ports: [{port: 80, targetPort: 8080}]}
`
	the.Feed(t, fmt.Sprintf(asking, "192.0.2.1"), "apply", "-f", "-")
	t.Cleanup(func() {
		if _, err := the.Try(context.Background(), "", "delete", "service", "asking", "late", "--ignore-not-found", "--timeout", "1m"); err != nil {
			t.Error(err)
		}
	})
	the.says(t, "asking", "spec.loadBalancerIP: 192.0.2.1 is in none of the address pools")
	the.Feed(t, fmt.Sprintf(asking, second), "apply", "-f", "-")
	asked := &balancer{cluster: the, t: t, name: "asking", address: second, api: the.Client(t)}
	asked.answers(30 * time.Second)

	the.Feed(t, strings.NewReplacer("asking", "late", `loadBalancerIP: %q, `, "").Replace(asking), "apply", "-f", "-")
	the.says(t, "late", "no free IPv4 address is left in the address pools metal")
	the.Podium(t, "delete", "service", "asking", "--timeout", "30s")
	late := &balancer{cluster: the, t: t, name: "late", address: second, api: asked.api}
	docked.Eventually(t, 10*time.Second, "the Service that came too late has the address that is free now", func(ctx context.Context) error {
		s, err := late.service(ctx)
		if err != nil {
			return err
		}
		if in := s.Status.LoadBalancer.Ingress; len(in) != 1 || in[0].IP != second {
			return fmt.Errorf("it has %v", in)
		}
		return nil
	})
	late.answers(10 * time.Second)
}

// says waits for an event of a Service.
func (c cluster) says(t *testing.T, service, text string) {
	t.Helper()
	docked.Eventually(t, 20*time.Second, service+" says: "+text, func(ctx context.Context) error {
		out, err := c.Try(ctx, "", "describe", "service", service)
		if err == nil && !strings.Contains(out, text) {
			err = errors.New(out)
		}
		return err
	})
}

// metal replaces the control plane's cloud-controller-manager by one with the baremetal
// provider and a pool of two addresses.
func (c cluster) metal(t *testing.T) (first, second string) {
	t.Helper()
	subnet, err := docked.Docker(t.Context(), "network", "inspect", "podium-"+clusterName, "-f", "{{(index .IPAM.Config 0).Subnet}}")
	if err != nil {
		t.Fatal(err)
	}
	base := subnet[:strings.LastIndex(subnet, ".")+1]
	first, second = base+"200", base+"201"
	in := func(ctx context.Context, script string) {
		t.Helper()
		if _, err := docked.Docker(ctx, "exec", plane, "sh", "-ec", script); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		in(context.Background(), "systemctl stop e2e-metal; systemctl start cloud-controller-manager")
	})
	in(t.Context(), `cat > /run/metal.yaml <<E
apiVersion: config.podium.dev/v1alpha1
kind: BareMetalCloud
addressPools: [{name: metal, addresses: [`+first+`, `+second+`]}]
E
systemctl stop cloud-controller-manager
systemd-run --quiet --collect --unit e2e-metal /usr/bin/cloud-controller-manager --config /etc/podium/cloud-controller-manager.yaml \
  --cloud-provider baremetal --cloud-config /run/metal.yaml --controllers service-lb-controller --leader-elect=false`)
	return first, second
}
