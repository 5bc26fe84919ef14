package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/client"
)

// TestKill kills each process of the cluster in turn with SIGKILL, then all at once, while
// requests go to a Service from the node and from a pod. Containers keep running and no request
// is lost; `podium cluster create` restarts the dead processes, the cluster has the same
// objects as before, and it does new work.
func TestKill(t *testing.T) {
	s := newSpace(t)
	s.apply(webOf(3) + "\n---\n" + box("client", "sleep 3600"))
	visitor := s.ready("client")
	s.rolledOut("web")
	fromNode(t, false).answers(t, s.url("web"), 3)
	everything := append([]string{"containerd"}, daemons...)

	for _, victims := range append(one(everything), everything) {
		name := strings.Join(victims, " ")
		if len(victims) > 1 {
			name = "all at once"
		}
		t.Run(name, func(t *testing.T) {
			s := s.within(t)
			all := startLoads(t, s.url("web"), visitor)
			all.more(t, 20)
			running, objects := s.containers(), the.objects(t)

			the.kill(t, victims...)
			all.more(t, 50)
			begin := time.Now()
			if err := the.create(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: up again %v after the word to", name, time.Since(begin).Round(time.Millisecond))
			all.more(t, 20)
			s.scale("web", 4)
			s.rolledOut("web")
			fromNode(t, false).answers(t, s.url("web"), 4)
			t.Logf("%s: a fourth pod answers after %v", name, time.Since(begin).Round(time.Millisecond))
			s.scale("web", 3)
			s.rolledOut("web")
			all.lostNone(t)

			s.same(running)
			eventually(t, 30*time.Second, "the objects are as before", func() error {
				if diff := cmp.Diff(objects, the.objects(t)); diff != "" {
					return fmt.Errorf("(-before +after):\n%s", diff)
				}
				return nil
			})
		})
	}
}

// Work that was in progress when everything was killed is finished afterwards.
func TestKillAllInTheMiddle(t *testing.T) {
	s := newSpace(t)
	s.apply(webOf(3) + "\n---\n" + box("client", "sleep 3600"))
	visitor := s.ready("client")
	s.rolledOut("web")
	fromNode(t, false).answers(t, s.url("web"), 3)
	all := startLoads(t, s.url("web"), visitor)
	for round := range 3 {
		s.patch("web", fmt.Sprintf(`{"spec":{"replicas":%d,"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, 5-round, round))
		all.more(t, 10+20*round) // how far the work gets
		the.kill(t, append([]string{"containerd"}, daemons...)...)
		if err := the.create(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.rolledOut("web")
	}
	all.lostNone(t)
	fromNode(t, false).answers(t, s.url("web"), 3)
	s.endpoints("web", s.pods("app=web"))
}

func one(names []string) (each [][]string) {
	for _, name := range names {
		each = append(each, []string{name})
	}
	return each
}

// within returns the space for a subtest.
func (s *space) within(t *testing.T) *space { return &space{T: t, api: s.api, name: s.name} }

// kill kills processes of the cluster and returns when they are gone.
func (c *cluster) kill(t *testing.T, names ...string) {
	t.Helper()
	pids := map[string]int{}
	for _, name := range names {
		pids[name] = c.pid(t, name)
		if err := syscall.Kill(pids[name], syscall.SIGKILL); err != nil {
			t.Fatalf("kill %s: %v", name, err)
		}
	}
	for name, pid := range pids {
		eventually(t, 10*time.Second, name+" is dead", func() error {
			if alive(pid) {
				return errNotYet
			}
			return nil
		})
	}
}

// container is what must not change of a container that keeps running.
type container struct {
	Name, ID string
	PID      int
	Restarts int32
}

// containers returns the containers of the space's pods, by pod.
func (s *space) containers() map[string]container {
	s.Helper()
	all := map[string]container{}
	for _, pod := range append(s.pods("app=web"), s.pods("app=client")...) {
		status := pod.Status.ContainerStatuses[0]
		all[pod.Name] = container{status.Name, status.ContainerID, the.containerPID(s.T, pod), status.RestartCount}
	}
	return all
}

// same checks that the containers in before are still running unchanged, and that the runtime
// has no others of their pods.
func (s *space) same(before map[string]container) {
	s.Helper()
	now := s.containers()
	if diff := cmp.Diff(before, now); diff != "" {
		s.Errorf("the running containers (-before +after):\n%s", diff)
	}
	eventually(s.T, 20*time.Second, "the runtime has nothing twice", func() error {
		list, err := the.runtime(s.T).ListContainers(s.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
			LabelSelector: map[string]string{"io.kubernetes.pod.namespace": s.name},
		}})
		if err == nil && len(list.Containers) != len(before) {
			err = fmt.Errorf("it has %d containers, want %d: %v", len(list.Containers), len(before), list.Containers)
		}
		return err
	})
}

// objects returns the UIDs of all objects of the cluster except events, by path.
func (c *cluster) objects(t *testing.T) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	api := c.client(t)
	all := map[string]string{}
	for _, kind := range api.Scheme().Kinds() {
		if kind.Resource == "events" || !kind.Stored() {
			continue
		}
		body, _, err := api.Do(ctx, client.Request{Method: "GET", Path: client.CollectionPath(kind, ""), Header: map[string][]string{"Accept": {"application/json"}}})
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Items []struct{ Metadata metav1.ObjectMeta }
		}
		if err := json.Unmarshal(body, &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			all[kind.Resource+" "+o.Metadata.Namespace+"/"+o.Metadata.Name] = string(o.Metadata.UID)
		}
	}
	return all
}
