package vm

import (
	"testing"
	"time"

	"podium/test/e2e/page"
)

// asAdmin is the prefix of commands on control planes.
const asAdmin = "export KUBECONFIG=/etc/podium/admin.conf\n"

// cluster is the page's, with three control planes and no workers.
type cluster struct {
	*page.Story
	third *machine
}

// TestPage follows the operator's page on three virtual machines. Between its commands an app runs
// on all of them, one machine loses its power and comes back, and all data is lost and restored.
func TestPage(t *testing.T) {
	begin := time.Now()
	l := setUp(t)
	machines, operators := make([]*machine, 3), make([]*page.Operator, 3)
	for i, name := range []string{"first", "second", "third"} {
		machines[i], operators[i] = l.place(t, i+1, name)
		machines[i].powerOn()
	}
	l.prepare(t, machines, operators)
	c := cluster{third: machines[2], Story: &page.Story{First: operators[0], Planes: operators[1:], Again: 2}}
	c.Before = map[string]func(){
		"restore podium restore": func() { c.First.Run("podium reset") },
	}
	c.After = map[string]func(){
		"every apt-get install":     func() { l.calm(operators...) },
		"first podium init":         c.ground,
		"first podium certs upload": c.skewed,
		"first podium wait node": func() {
			c.apps()
			c.limits()
			c.powerLoss()
		},
		"restore podium restore": c.restored,
	}
	c.Follow(t)
	t.Logf("from no machine to the end of the page: %.0f s", time.Since(begin).Seconds())
}

// prepare copies the package to booting machines as an operator does, and images, because there is
// no registry.
func (l *lab) prepare(t *testing.T, machines []*machine, operators []*page.Operator) {
	t.Helper()
	ok := t.Run("blank machines", func(t *testing.T) {
		for i, m := range machines {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				o := *operators[i]
				o.T = t
				m.booted(&o)
				o.Put(l.deb, "/root/podium_test.deb")
				for _, image := range []string{"web", "busybox"} {
					o.Put(abs(t, images, image+".tar"), "/root/"+image+".tar")
					o.Run("ctr --namespace k8s.io images import /root/" + image + ".tar")
				}
			})
		}
	})
	if !ok {
		t.FailNow()
	}
}
