package scheduler_test

import (
	"fmt"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
)

// Nodes on which a request gets its first alternative are preferred.
func TestFirstAlternativesArePreferred(t *testing.T) {
	withGPUs(t, func(g *gpus) {
		g.slice("a", "slow-0")
		g.slice("b", "fast-0", "slow-0")
		named := func(name string) resourcev1.DeviceSubRequest {
			return resourcev1.DeviceSubRequest{Name: name, DeviceClassName: "gpu", Selectors: []resourcev1.DeviceSelector{{
				CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.attributes['gpu.example.com'].kind == %q", name)},
			}}}
		}
		for i, want := range []string{"b/fast-0", "a/slow-0", "b/slow-0"} {
			claim := gpuClaim(fmt.Sprint("c", i), 1)
			claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{named("fast"), named("slow")}}}
			_, err := g.claims.Create(g.t.Context(), claim)
			g.must(err)
			pod := fmt.Sprint("p", i)
			g.pod(pod, claim.Name)
			g.on(pod, want[:1], "")
			if got := g.devices(claim.Name); got != want+" for "+pod {
				g.t.Errorf("%s has %s, want %s", pod, got, want)
			}
		}
	})
}
