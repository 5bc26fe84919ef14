package dra

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// The kubelet may be killed at each of these moments; the checkpoint is what it left.
func TestRestartAtEachStep(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("card", []string{"card " + gpu}, "a")
	p := pod("a", "card")

	d.fail(func(context.Context, string) error { return errors.New("killed before it prepared") })
	wantErr(t, w.m.Prepare(t.Context(), p), "killed before")
	d.fail(nil)
	w.restart(d)
	if w.m.Prepared(p) || !slices.Contains(w.m.Pods(), "a") {
		t.Error("the pod's claims after a failed preparation")
	}
	must(t, w.m.Prepare(t.Context(), p))
	w.restart(d)
	if diff := cmp.Diff([]string{gpu + "/card=card"}, w.devices(p)); diff != "" || !w.m.Prepared(p) {
		t.Error("a container that is restarted after a restart of the kubelet", diff)
	}
	d.took()
	must(t, w.m.Prepare(t.Context(), p)) // a new sandbox, perhaps after a reboot
	if diff := cmp.Diff([]string{"prepare card"}, d.took()); diff != "" {
		t.Error(diff)
	}

	d.fail(func(context.Context, string) error { return errors.New("killed before it unprepared") })
	wantErr(t, w.m.Unprepare(t.Context(), "a"), "killed before")
	d.fail(nil)
	w.restart()
	wantErr(t, w.m.Unprepare(t.Context(), "a"), "DRA driver gpu.example.com is not registered")
	must(t, w.m.Register(t.Context(), d.plugin))
	must(t, w.m.Unprepare(t.Context(), "a"))
	w.restart(d)
	if len(w.m.Pods()) > 0 {
		t.Errorf("pods %v", w.m.Pods())
	}
	w.idle(d)
}

func TestFailedCheckpointStopsTheDriver(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("card", []string{"card " + gpu}, "a")
	block := w.m.path() + ".new"
	must(t, os.Mkdir(block, 0o700))
	wantErr(t, w.m.Prepare(t.Context(), pod("a", "card")), "write the checkpoint")
	if calls := d.took(); calls != nil {
		t.Errorf("the driver was called without a record: %q", calls)
	}
	must(t, os.Remove(block))
	must(t, w.m.Prepare(t.Context(), pod("a", "card")))
	must(t, os.Mkdir(block, 0o700))
	wantErr(t, w.m.Unprepare(t.Context(), "a"), "write the checkpoint")
	must(t, os.Remove(block))
	w.restart(d)
	must(t, w.m.Unprepare(t.Context(), "a")) // the driver has done it already
	w.idle(d)
}

func TestDamagedCheckpointStopsTheKubelet(t *testing.T) {
	w := newWorld(t)
	must(t, os.WriteFile(w.m.path(), []byte(`{"version":1,"claims":[{"uid":"x"`), 0o600))
	_, err := New(w.cfg)
	wantErr(t, err, stateFile)
}

func TestHostileAnswers(t *testing.T) {
	many := func(n int, d *drapb.Device) (out []*drapb.Device) {
		for range n {
			out = append(out, d)
		}
		return out
	}
	one := func(d *drapb.Device) func(*drapb.NodePrepareResourcesResponse) {
		return func(r *drapb.NodePrepareResourcesResponse) {
			r.Claims["uid-card"] = &drapb.NodePrepareResourceResponse{Devices: []*drapb.Device{d}}
		}
	}
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("card", []string{"card " + gpu}, "a")
	for want, answer := range map[string]func(*drapb.NodePrepareResourcesResponse){
		"skipped ResourceClaim card":                  func(r *drapb.NodePrepareResourcesResponse) { clear(r.Claims) },
		"returned results for unknown ResourceClaims": func(r *drapb.NodePrepareResourcesResponse) { r.Claims["other"] = nil },
		"failed for ResourceClaim card: no":           func(r *drapb.NodePrepareResourcesResponse) { r.Claims["uid-card"].Error = "no" },
		strings.Repeat("x", maxMessage-3) + "...":     func(r *drapb.NodePrepareResourcesResponse) { r.Claims["uid-card"].Error = strings.Repeat("x", 1<<20) },
		"1000 devices are more than 256": func(r *drapb.NodePrepareResourcesResponse) {
			r.Claims["uid-card"].Devices = many(1000, &drapb.Device{})
		},
		"more than 64 requests or CDI ids":       one(&drapb.Device{CdiDeviceIds: make([]string, 100)}),
		"a name is longer than 253 characters":   one(&drapb.Device{PoolName: strings.Repeat("p", 254)}),
		`"/etc/passwd" is not a fully qualified`: one(&drapb.Device{CdiDeviceIds: []string{"/etc/passwd"}}),
		`"" is not a fully qualified CDI device`: one(&drapb.Device{CdiDeviceIds: []string{""}}),
		"received message larger than max":       func(r *drapb.NodePrepareResourcesResponse) { r.Claims["uid-card"].Error = strings.Repeat("x", 5<<20) },
	} {
		d.answer = answer
		err := w.m.Prepare(t.Context(), pod("a", "card"))
		if err == nil {
			t.Fatalf("%.100s: no error", want)
		}
		wantErr(t, err, want)
		if len(err.Error()) > 2*maxMessage || w.m.Prepared(pod("a", "card")) {
			t.Errorf("%s: an error of %d bytes, prepared %v", want, len(err.Error()), w.m.Prepared(pod("a", "card")))
		}
	}
	d.answer = func(r *drapb.NodePrepareResourcesResponse) { r.Claims["uid-card"] = nil } // valid: no devices
	must(t, w.m.Prepare(t.Context(), pod("a", "card")))
	if ids := w.devices(pod("a", "card")); len(ids) > 0 {
		t.Errorf("devices %q", ids)
	}
	must(t, w.m.Unprepare(t.Context(), "a"))
	w.idle(d)
}

// A driver that does not answer holds up neither other pods nor the end of the kubelet.
func TestHungDriver(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.cfg.CallTimeout = 300 * time.Millisecond
	w.start()
	hung, fine := w.driver(gpu), w.driver(nic)
	release := make(chan struct{})
	defer close(release)
	hung.fail(func(context.Context, string) error { <-release; return nil })
	w.claim("stuck", []string{"card " + gpu}, "a")
	w.claim("works", []string{"port " + nic}, "b")
	done := make(chan error, 1)
	go func() { done <- w.m.Prepare(t.Context(), pod("a", "stuck")) }()
	must(t, w.m.Prepare(t.Context(), pod("b", "works")))
	wantErr(t, <-done, "DeadlineExceeded")
	must(t, w.m.Unprepare(t.Context(), "b"))
	w.idleBut(1, fine)

	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- w.m.Prepare(ctx, pod("a", "stuck")) }() // the pod is deleted
	cancel()
	wantErr(t, <-done, "context canceled")
}

// idleBut checks that the drivers have prepared nothing, and that the checkpoint has n
// claims.
func (w *world) idleBut(n int, drivers ...*driver) {
	w.t.Helper()
	for _, d := range drivers {
		if d.holds() > 0 {
			w.t.Errorf("%s has prepared claims", d.name)
		}
	}
	if claims, err := readState(w.m.path()); err != nil || len(claims) != n {
		w.t.Errorf("the checkpoint has %d claims, want %d: %v", len(claims), n, err)
	}
}

// One driver of a claim fails: the other is not asked again, and both unprepare it.
func TestOneOfTwoDriversFails(t *testing.T) {
	w := newWorld(t)
	bad, good := w.driver(gpu), w.driver(nic)
	w.claim("both", []string{"card " + gpu, "port " + nic}, "a")
	bad.fail(func(context.Context, string) error { return errors.New("no") })
	wantErr(t, w.m.Prepare(t.Context(), pod("a", "both")), "DRA driver gpu.example.com: NodePrepareResources")
	bad.fail(nil)
	must(t, w.m.Prepare(t.Context(), pod("a", "both")))
	if diff := cmp.Diff([]string{"prepare both"}, good.took()); diff != "" {
		t.Error(diff)
	}
	bad.fail(func(context.Context, string) error { return errors.New("no") })
	wantErr(t, w.m.Unprepare(t.Context(), "a"), "DRA driver gpu.example.com: NodeUnprepareResources")
	bad.fail(nil)
	must(t, w.m.Unprepare(t.Context(), "a"))
	if diff := cmp.Diff([]string{"unprepare both"}, good.took()); diff != "" {
		t.Error(diff)
	}
	w.idle(bad, good)
}
