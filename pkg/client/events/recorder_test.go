package events_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/client/events"
)

type stage struct {
	t   *testing.T
	api *clienttest.Server
	rec *events.Recorder
	end func()
}

func newStage(t *testing.T, api *clienttest.Server) *stage {
	s := &stage{t: t, api: api, rec: events.New(api.Client(t), "tester", "host", slog.New(slog.DiscardHandler))}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.rec.Run(ctx) }()
	s.end = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return s
}

func (s *stage) list() []*corev1.Event {
	l, err := client.For[*corev1.Event](s.api.Client(s.t)).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return l.Items
}

func (s *stage) lines() string {
	var out []string
	for _, e := range s.list() {
		out = append(out, fmt.Sprintf("%s x%d %s", e.Reason, e.Count, e.Message))
	}
	return strings.Join(out, "; ")
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u", ResourceVersion: "5"}}
}

func TestAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, clienttest.New())
		s.rec.EventOn(pod("a"), "spec.containers{web}", "Warning", "Bad", "it broke")
		s.rec.Eventf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, "Normal", "Good", "%d times", 3)
		time.Sleep(time.Second)
		list := s.list()
		if len(list) != 2 {
			t.Fatal(s.lines())
		}
		onNode, onPod := list[0], list[1]
		if onNode.Namespace != "default" || onNode.InvolvedObject.Kind != "Node" || onNode.Message != "3 times" {
			t.Errorf("%+v", onNode)
		}
		want := corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "5", FieldPath: "spec.containers{web}"}
		if onPod.InvolvedObject != want || onPod.Source.Component != "tester" || onPod.Type != "Warning" || !strings.HasPrefix(onPod.Name, "a.") {
			t.Errorf("%+v", onPod)
		}
		s.end()
	})
}

func TestRepetitionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, clienttest.New())
		for range 3 {
			s.rec.Event(pod("a"), "Warning", "Bad", "it broke")
			time.Sleep(time.Second)
		}
		if got := s.lines(); got != "Bad x3 it broke" {
			t.Error(got)
		}
		if e := s.list()[0]; e.LastTimestamp.Sub(e.FirstTimestamp.Time) != 2*time.Second {
			t.Errorf("from %v to %v", e.FirstTimestamp, e.LastTimestamp)
		}
		// The event was deleted: the series continues in a new object.
		if err := client.For[*corev1.Event](s.api.Client(t)).In("ns").Delete(t.Context(), s.list()[0].Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.rec.Event(pod("a"), "Warning", "Bad", "it broke")
		time.Sleep(time.Second)
		if got := s.lines(); got != "Bad x4 it broke" {
			t.Error(got)
		}
		s.end()
	})
}

// Two components that have an event about an object at the same time both record it.
func TestSimultaneousEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := clienttest.New()
		one, two := newStage(t, api), newStage(t, api)
		one.rec.Event(pod("a"), "Warning", "Bad", "it broke")
		two.rec.Event(pod("a"), "Normal", "Good", "it works")
		time.Sleep(time.Second)
		if got := one.lines(); !strings.Contains(got, "Bad x1") || !strings.Contains(got, "Good x1") {
			t.Error(got)
		}
		one.end()
		two.end()
	})
}

// An action has the fields of events.k8s.io/v1 and no others: kubectl sorts by them.
func TestAnAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, clienttest.New())
		began := time.Now()
		for range 3 {
			time.Sleep(time.Second)
			s.rec.Action(pod("a"), time.Now(), "Warning", "FailedScheduling", "Scheduling", strings.Repeat("é", 600))
		}
		time.Sleep(time.Second)
		list := s.list()
		if len(list) != 1 {
			t.Fatal(s.lines())
		}
		e := list[0]
		if !e.EventTime.Equal(&metav1.MicroTime{Time: began.Add(time.Second)}) || e.Series == nil || e.Series.Count != 3 || !e.Series.LastObservedTime.Equal(&metav1.MicroTime{Time: began.Add(3 * time.Second)}) {
			t.Errorf("times %v, series %+v", e.EventTime, e.Series)
		}
		if e.Action != "Scheduling" || e.ReportingController != "tester" || e.ReportingInstance != "host" || len(e.Message) != 1024 {
			t.Errorf("%+v", e)
		}
		if !e.FirstTimestamp.IsZero() || !e.LastTimestamp.IsZero() || e.Count != 0 || e.Source.Component != "" {
			t.Errorf("it has fields of core/v1: %+v", e)
		}
		s.end()
	})
}

func TestSimilarOnesBecomeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, clienttest.New())
		for i := range 15 {
			s.rec.Event(pod("a"), "Warning", "Bad", fmt.Sprint("number ", i))
			time.Sleep(time.Second)
		}
		list := s.list()
		last := list[len(list)-1]
		if len(list) != 11 || last.Count != 5 || last.Message != "(combined from similar events): number 14" {
			t.Error(s.lines())
		}
		s.end()
	})
}

func TestSpamIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, clienttest.New())
		for range 60 {
			s.rec.Event(pod("a"), "Warning", "Bad", "it broke")
			time.Sleep(time.Second)
		}
		s.rec.Event(pod("b"), "Normal", "Good", "another object is not concerned")
		time.Sleep(5 * time.Minute)
		s.rec.Event(pod("a"), "Warning", "Bad", "it broke")
		time.Sleep(time.Second)
		if got := s.lines(); got != "Bad x26 it broke; Good x1 another object is not concerned" {
			t.Error(got)
		}
		if n := s.rec.Dropped(); n != 35 {
			t.Errorf("%d dropped", n)
		}
		s.end()
	})
}

func TestRecorderDoesNotBlockWithoutServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := clienttest.New()
		back := time.Now().Add(5 * time.Second)
		api.Before = func(*http.Request) (*http.Response, error) {
			if time.Now().Before(back) {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, nil
		}
		s := newStage(t, api)
		began := time.Now()
		for i := range 3000 {
			s.rec.Event(pod(fmt.Sprint(i)), "Normal", "Good", "m")
		}
		if time.Since(began) != 0 {
			t.Errorf("Event took %v", time.Since(began))
		}
		time.Sleep(time.Minute)
		if n := int64(len(s.list())); n < 1000 || n+s.rec.Dropped() != 3000 {
			t.Errorf("%d written, %d dropped", n, s.rec.Dropped())
		}
		s.end()
	})
}

func TestANilRecorderDiscards(t *testing.T) {
	var r *events.Recorder
	r.Event(pod("a"), "Normal", "Good", "m")
}
