package simulation

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func statefulSet(name, image string, replicas int) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(replicas)), ServiceName: name + "-headless",
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: template(name, image),
		},
	}
}

func setImage(image string, replicas int) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Spec.Template.Spec.Containers[0].Image = image
		set.Spec.Replicas = new(int32(replicas))
	}
}

// stateful lists the StatefulSets and their revisions.
type stateful struct {
	sets      []*appsv1.StatefulSet
	revisions []*appsv1.ControllerRevision
}

func (w *world) stateful(ctx context.Context) stateful {
	return stateful{sets: list[*appsv1.StatefulSet](ctx, w), revisions: list[*appsv1.ControllerRevision](ctx, w)}
}

func (s stateful) lines() (out []string) {
	for _, set := range s.sets {
		st := set.Status
		out = append(out, fmt.Sprintf("statefulset %s of %s: wants %d, has %d, updated %d, ready %d, available %d, observed %t, complete %t",
			set.Name, set.Spec.Template.Spec.Containers[0].Image, *set.Spec.Replicas, st.Replicas, st.UpdatedReplicas, st.ReadyReplicas, st.AvailableReplicas,
			st.ObservedGeneration == set.Generation, st.CurrentRevision == st.UpdateRevision))
	}
	return out
}

// watchIdentities checks at every second that no two pods of one name have running containers,
// on whatever machines, until the returned function is called.
func (w *world) watchIdentities(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			w.checkIdentities()
			pause(ctx, time.Second)
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (w *world) checkIdentities() {
	runs := map[string]string{}
	for _, m := range w.machines() {
		for _, c := range m.runtime.Containers() {
			if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				continue
			}
			pod := c.Namespace + "/" + c.Pod
			if uid := runs[pod]; uid != "" && uid != c.UID {
				w.problem("two pods named %s run at once", pod)
			}
			runs[pod] = c.UID
		}
	}
}

// identities rolls a StatefulSet out and scales it. The journal cannot see two pods of one name:
// the containers on the machines show them.
func identities(ctx context.Context, w *world) {
	defer w.watchIdentities(ctx)()
	create(ctx, w, service("default", "ordinal", true))
	create(ctx, w, statefulSet("ordinal", "db:1", 3))
	w.await(ctx, "pods of the StatefulSet", func() bool { return w.ran(ctx, "ordinal") == 3 })
	edit(ctx, w, "default", "ordinal", setImage("db:2", 4))
	w.someTime(ctx, "StatefulSet", 40*time.Second)
	edit(ctx, w, "default", "ordinal", setImage("db:3", 3))
	w.someTime(ctx, "end of the StatefulSet", 40*time.Second)
}
