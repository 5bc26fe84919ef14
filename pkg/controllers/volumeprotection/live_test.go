package volumeprotection

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// api is a namespace with pods that counts the requests.
type api struct {
	pods        map[string]*corev1.Pod
	revision    int
	lists, gets int
}

func (a *api) live() *livePods {
	return &livePods{lists: map[string]listed{},
		list: func(context.Context, string) (*client.List[*corev1.Pod], error) {
			a.lists++
			l := &client.List[*corev1.Pod]{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.revision)}}
			for _, pod := range a.pods {
				l.Items = append(l.Items, pod)
			}
			return l, nil
		},
		get: func(_ context.Context, _, name string) (*corev1.Pod, error) {
			a.gets++
			if pod, ok := a.pods[name]; ok {
				return pod, nil
			}
			return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
		},
	}
}

func claim(name string, revision int) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: strconv.Itoa(revision)}}
}

func podWith(claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + claim},
		Spec: corev1.PodSpec{NodeName: "node", Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}},
	}
}

// used asks whether a claim is used, and checks the answer and the requests so far.
func (a *api) used(t *testing.T, live *livePods, claim *corev1.PersistentVolumeClaim, want bool, lists, gets int) {
	t.Helper()
	got, err := live.use(t.Context(), claim)
	if err != nil || got != want || a.lists != lists || a.gets != gets {
		t.Errorf("%s: used %v, %v after %d lists and %d gets; want %v after %d and %d", claim.Name, got, err, a.lists, a.gets, want, lists, gets)
	}
}

func TestOneListAnswersForManyClaims(t *testing.T) {
	a := &api{revision: 200, pods: map[string]*corev1.Pod{}}
	live := a.live()
	for i := range 100 {
		a.used(t, live, claim(fmt.Sprint(i), 100+i), false, 1, 0)
	}
}

func TestClaimsDeletedAfterAListNeedAnother(t *testing.T) {
	a := &api{revision: 5, pods: map[string]*corev1.Pod{}}
	live := a.live()
	a.used(t, live, claim("early", 5), false, 1, 0)
	a.pods["pod-late"], a.revision = podWith("late"), 7
	a.used(t, live, claim("late", 6), true, 2, 1)
}

// A claim is not kept because of a pod that has gone since the list.
func TestUsersInAnOldListAreLookedUp(t *testing.T) {
	a := &api{revision: 5, pods: map[string]*corev1.Pod{"pod-a": podWith("a"), "pod-b": podWith("b")}}
	live := a.live()
	a.used(t, live, claim("a", 3), true, 1, 1)
	delete(a.pods, "pod-a")
	a.used(t, live, claim("a", 3), false, 1, 2)
	a.used(t, live, claim("b", 4), true, 1, 3)
}

func TestOldListsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{revision: 5, pods: map[string]*corev1.Pod{}}
		live := a.live()
		a.used(t, live, claim("a", 3), false, 1, 0)
		time.Sleep(2 * time.Minute)
		other := claim("b", 3)
		other.Namespace = "other"
		a.used(t, live, other, false, 2, 0)
		if _, kept := live.lists["ns"]; kept || len(live.lists) != 1 {
			t.Errorf("%d lists are kept", len(live.lists))
		}
	})
}
