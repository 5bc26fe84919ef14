package dra

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"podium/pkg/kubelet/plugins"
)

// During a rolling update two plugins of one driver are registered.
func TestRollingUpdate(t *testing.T) {
	w := newWorld(t)
	old := w.driver(gpu)
	w.claim("one", []string{"card " + gpu}, "a")
	w.claim("two", []string{"card " + gpu}, "b")
	must(t, w.m.Prepare(t.Context(), pod("a", "one")))
	next := &driver{name: gpu, world: w, prepared: map[string]bool{"uid-one": true}}
	next.serve("new.sock")
	defer next.server.Stop()
	must(t, w.m.Prepare(t.Context(), pod("b", "two")))
	must(t, w.m.Deregister(t.Context(), old.plugin))
	old.server.Stop()
	must(t, w.m.Unprepare(t.Context(), "a"))
	must(t, w.m.Unprepare(t.Context(), "b"))
	if diff := cmp.Diff([]string{"prepare two", "unprepare one", "unprepare two"}, next.took()); diff != "" {
		t.Error(diff)
	}
	w.idle(next)

	// The new plugin crashes and leaves its socket; an older one takes over.
	older := &driver{name: gpu, world: w, prepared: map[string]bool{}}
	older.serve("older.sock")
	defer older.server.Stop()
	newest := &driver{name: gpu, world: w, prepared: map[string]bool{}}
	newest.serve("newest.sock")
	newest.server.Stop()
	w.until("the crash is seen", func() bool { return !w.connected(newest.plugin) })
	must(t, w.m.Prepare(t.Context(), pod("a", "one")))
	if diff := cmp.Diff([]string{"prepare one"}, older.took()); diff != "" {
		t.Error(diff)
	}
}

func TestDriversWithGarbageAreNotRegistered(t *testing.T) {
	w := newWorld(t)
	for want, p := range map[string]plugins.Plugin{
		"none of the DRA versions": {Name: gpu, Versions: []string{"1.0.0", "v2.DRAPlugin"}},
		"invalid DRA driver name":  {Name: "a,spec.nodeName=b", Versions: []string{drapb.DRAPluginService}},
	} {
		wantErr(t, w.m.Register(t.Context(), p), want)
	}
	w.stop()
	wantErr(t, w.m.Register(t.Context(), plugins.Plugin{Name: gpu, Versions: []string{drapb.DRAPluginService}}), "stopping")
	w.start()
}

func TestSlicesOfDriversThatStayAwayAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() { w.stop(); w.stop = func() {} }()
		pass := func(d time.Duration) []string {
			time.Sleep(d)
			synctest.Wait()
			return w.deletions()
		}
		p := func(name, socket string) plugins.Plugin {
			return plugins.Plugin{Name: name, Socket: socket}
		}
		connect := func(name string, is bool) {
			w.m.reg.Lock()
			all := slices.Clone(w.m.registry.plugins[name])
			w.m.reg.Unlock()
			for _, have := range all {
				w.m.setConnected(have, is)
			}
		}
		// Nothing watches the connections: the test says what they are.
		add := func(name, socket string) {
			conn, err := plugins.Dial(w.root + "/" + socket)
			must(t, err)
			must(t, w.m.add(&plugin{Plugin: p(name, socket), conn: conn, watched: true}))
		}
		add(gpu, gpu)
		add(nic, nic)
		synctest.Wait()
		connect(gpu, true)
		if got := pass(29 * time.Second); got != nil {
			t.Errorf("too early: %q", got)
		}
		connect(gpu, true)
		want := []string{"spec.nodeName=n,spec.driver=" + nic, "spec.nodeName=n,spec.driver!=" + gpu}
		got := pass(2 * time.Second)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("at the start: %s", diff)
		}

		// One plugin of two goes: the driver is there.
		add(gpu, "second")
		connect(gpu, true)
		must(t, w.m.Deregister(t.Context(), p(gpu, gpu)))
		if got := pass(time.Hour); len(got) != 2 {
			t.Errorf("while it is there: %q", got)
		}
		connect(gpu, false) // it crashes, and comes back in time
		pass(29 * time.Second)
		connect(gpu, true)
		if got := pass(time.Hour); len(got) != 2 {
			t.Errorf("after a restart: %q", got)
		}
		w.fail(errDown)
		must(t, w.m.Deregister(t.Context(), p(gpu, "second")))
		pass(40 * time.Second)
		w.fail(nil)
		if got := pass(time.Minute); len(got) != 3 || got[2] != "spec.nodeName=n,spec.driver="+gpu {
			t.Errorf("after it went: %q", got)
		}
		if got := pass(time.Hour); len(got) != 3 {
			t.Errorf("later: %q", got)
		}
	})
}
