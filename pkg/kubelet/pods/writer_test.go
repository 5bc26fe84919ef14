package pods

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// unheard is an API whose responses to the first writes are lost and whose watch
// shows nothing meanwhile.
type unheard struct {
	*fakeAPI
	lost int
	log  bytes.Buffer
	keep func(*corev1.Pod) // changes each pod that is written; nil: no change
}

func (u *unheard) PatchStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	got, err := u.fakeAPI.PatchStatus(ctx, namespace, name, patch)
	if err == nil && u.keep != nil {
		u.change(name, u.keep)
		got, err = u.GetPod(ctx, namespace, name)
	}
	if u.lost > 0 {
		u.lost--
		return nil, errors.New("connection reset")
	}
	return got, err
}

// inWriter runs a test of one pod's writer; said is the status in the API at the end.
func inWriter(t *testing.T, api *unheard, story func(set func(corev1.PodStatus))) (said corev1.PodStatus) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		api.fakeAPI = newFakeAPI()
		pod := newPod("a")
		pod.Status = readyStatus("one", corev1.ConditionTrue)
		api.create(pod)
		woken := 0
		w := newWriter(api, slog.New(slog.NewTextHandler(&api.log, nil)), 1, func(types.UID) { woken++ })
		go w.run(ctx)
		synctest.Wait()
		story(func(s corev1.PodStatus) { w.set(pod, s); synctest.Wait() })
		time.Sleep(time.Minute)
		if !w.flushed(pod.UID) || woken == 0 {
			t.Error("the writer waits for something")
		}
		said = api.pods["a"].Status
		cancel()
		synctest.Wait()
	})
	return said
}

func readyStatus(id string, ready corev1.ConditionStatus) corev1.PodStatus {
	return corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.ContainersReady, Status: ready, LastTransitionTime: metav1.Unix(1, 0)}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: id, Ready: ready == corev1.ConditionTrue}},
	}
}

const keepsAnother = "keeps another pod status"

// The write whose response is lost has changed the API. The next write, a patch from
// the last known status, must not leave a part of it.
func TestStatusPatchWithLostResponse(t *testing.T) {
	api := &unheard{lost: 1}
	want := readyStatus("two", corev1.ConditionTrue)
	got := inWriter(t, api, func(set func(corev1.PodStatus)) {
		set(readyStatus("one", corev1.ConditionFalse))
		set(want)
	})
	if !apiequality.Semantic.DeepEqual(got, want) {
		t.Errorf("the API has %+v,\nwant %+v", got, want)
	}
	if strings.Contains(api.log.String(), keepsAnother) {
		t.Errorf("it was right at last, and the log says:\n%s", &api.log)
	}
}

// An API that needs maxRepeats writes gets them, without a warning.
func TestAnAPIThatIsRightAtLast(t *testing.T) {
	wrong := maxRepeats
	api := &unheard{}
	api.keep = func(p *corev1.Pod) {
		if wrong > 0 {
			wrong--
			p.Status.Message = "mine"
		}
	}
	want := readyStatus("two", corev1.ConditionTrue)
	got := inWriter(t, api, func(set func(corev1.PodStatus)) { set(want) })
	if n := len(api.writes()); n != 1+maxRepeats || !apiequality.Semantic.DeepEqual(got, want) || strings.Contains(api.log.String(), keepsAnother) {
		t.Errorf("%d writes, the API has %+v, the log says:\n%s", n, got, &api.log)
	}
}

// A status that the API keeps changing is written again a few times, then left alone.
func TestAPIKeepsAnotherStatus(t *testing.T) {
	api := &unheard{keep: func(p *corev1.Pod) { p.Status.Message = "mine" }}
	inWriter(t, api, func(set func(corev1.PodStatus)) { set(readyStatus("two", corev1.ConditionTrue)) })
	if n := len(api.writes()); n != 1+maxRepeats {
		t.Errorf("%d writes, want %d", n, 1+maxRepeats)
	}
	if n := strings.Count(api.log.String(), keepsAnother); n != 1 {
		t.Errorf("told %d times:\n%s", n, &api.log)
	}
}
