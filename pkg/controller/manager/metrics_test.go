package manager

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"podium/pkg/client/clienttest"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
)

// idle is a controller that does nothing.
type idle struct{}

func newIdle(controller.Context) (controller.Runner, error) { return idle{}, nil }

func (idle) Run(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestMetricsShowTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := clienttest.New()
		replica := func(name string) (r *prometheus.Registry, stop func()) {
			cfg := Default("kube-controller-manager")
			cfg.Client, cfg.Registry, cfg.Identity = api.Client(t), prometheus.NewRegistry(), name
			r = cfg.Registry.(*prometheus.Registry)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- Run(ctx, &cfg, func() (Term, error) {
					return Term{Informers: informers.New(cfg.Client, nil), Controllers: []controller.Spec{{Name: "idle", New: newIdle}}}, nil
				})
			}()
			time.Sleep(5 * time.Second)
			return r, func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Second)
			}
		}
		shows := func(r *prometheus.Registry, want string) {
			t.Helper()
			text := "# HELP leader_election_master_status 1 if this replica leads.\n# TYPE leader_election_master_status gauge\n" +
				`leader_election_master_status{name="kube-controller-manager"} ` + want + "\n"
			if err := testutil.GatherAndCompare(r, strings.NewReader(text), "leader_election_master_status"); err != nil {
				t.Error(err)
			}
		}
		a, stopA := replica("a")
		b, stopB := replica("b")
		shows(a, "1")
		shows(b, "0")
		stopA()
		shows(a, "0")
		shows(b, "1")
		stopB()
	})
}
