package staticpods

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/podspec"
)

// Manifests is where the manifests of the node are, and how often they are read.
type Manifests struct {
	Path       string        // a directory or a file; "": none
	FilePeriod time.Duration // 0: 20 s

	URL        string      // of a Pod or a PodList; "": none
	Header     http.Header // of requests for it
	HTTPPeriod time.Duration
	Transport  http.RoundTripper // nil: the network
}

// defaultPeriod is between two readings of manifests.
const defaultPeriod = 20 * time.Second

// Sources starts and ends pods when manifests change. It is safe for concurrent use.
type Sources struct {
	cfg    Manifests
	node   string
	log    *slog.Logger
	update func(old, pod *corev1.Pod)

	mu   sync.Mutex
	pods map[string][]*corev1.Pod // by kind of source; absent: it has not been read yet
	runs map[types.NamespacedName]*corev1.Pod
	told map[types.UID]bool // pods that were refused, and logged
}

// NewSources returns Sources for the node, which call update as an informer does. They do
// nothing until Run.
func NewSources(cfg Manifests, node string, update func(old, pod *corev1.Pod), log *slog.Logger) *Sources {
	for _, period := range []*time.Duration{&cfg.FilePeriod, &cfg.HTTPPeriod} {
		if *period <= 0 {
			*period = defaultPeriod
		}
	}
	return &Sources{cfg: cfg, node: node, log: log, update: update, pods: map[string][]*corev1.Pod{}, runs: map[types.NamespacedName]*corev1.Pod{}, told: map[types.UID]bool{}}
}

// Known reports whether all manifests have been read once.
func (s *Sources) Known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, files := s.pods[podspec.FileSource]
	_, web := s.pods[podspec.HTTPSource]
	return (files || s.cfg.Path == "") && (web || s.cfg.URL == "")
}

// Run reads the manifests until ctx ends. It leaves the pods running.
func (s *Sources) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if s.cfg.Path != "" {
		in := &files{path: s.cfg.Path, node: s.node, log: s.log}
		g.Go(func() error {
			s.follow(ctx, podspec.FileSource, s.cfg.FilePeriod, func() ([]*corev1.Pod, error) { return in.pods(time.Now()) })
			return nil
		})
	}
	if s.cfg.URL != "" {
		in := &web{url: s.cfg.URL, header: s.cfg.Header, client: &http.Client{Transport: s.cfg.Transport}, node: s.node}
		g.Go(func() error {
			s.follow(ctx, podspec.HTTPSource, s.cfg.HTTPPeriod, func() ([]*corev1.Pod, error) { return in.pods(ctx, time.Now()) })
			return nil
		})
	}
	return g.Wait()
}

// follow reads one source periodically. If it cannot be read, its pods stay as they are. It
// logs an error once.
func (s *Sources) follow(ctx context.Context, source string, period time.Duration, read func() ([]*corev1.Pod, error)) {
	last := ""
	for ctx.Err() == nil {
		pods, err := read()
		if err == nil {
			last = ""
		} else if text := err.Error(); text != last && ctx.Err() == nil {
			last = text
			s.log.Error("read static pod manifests failed", "source", source, "error", err)
		}
		if err == nil || pods != nil {
			s.set(source, pods)
		}
		_ = backoff.Sleep(ctx, period) // an ended ctx ends the loop
	}
}

// set replaces the pods of a source, and starts and ends pods accordingly.
func (s *Sources) set(source string, pods []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[source] = pods
	want := s.wantedLocked()
	for key, old := range maps.Clone(s.runs) {
		if next := want[key]; next == nil || !same(old, next) {
			s.log.Info("static pod ends", "pod", key, "uid", old.UID)
			delete(s.runs, key)
			s.update(old, nil)
		}
	}
	for key, pod := range want {
		if s.runs[key] == nil {
			s.log.Info("static pod", "pod", key, "uid", pod.UID, "source", source)
			s.runs[key] = pod
			s.update(nil, pod)
		}
	}
}

// wantedLocked returns the pods of all sources. Of two with one name or one uid, it is the
// first of the first source; the other is logged. s.mu is held.
func (s *Sources) wantedLocked() map[types.NamespacedName]*corev1.Pod {
	out, uids, refused := map[types.NamespacedName]*corev1.Pod{}, map[types.UID]bool{}, map[types.UID]bool{}
	for _, source := range []string{podspec.FileSource, podspec.HTTPSource} {
		for _, pod := range s.pods[source] {
			key := nameOf(pod)
			if out[key] != nil || uids[pod.UID] {
				refused[pod.UID] = true
				if !s.told[pod.UID] {
					s.log.Error("another static pod has this name or uid", "pod", key, "uid", pod.UID, "source", source)
				}
				continue
			}
			out[key], uids[pod.UID] = pod, true
		}
	}
	s.told = refused
	return out
}

// same reports whether two versions of a manifest describe the same pod.
func same(a, b *corev1.Pod) bool {
	x, y := maps.Clone(a.Annotations), maps.Clone(b.Annotations)
	delete(x, podspec.SeenAnnotation)
	delete(y, podspec.SeenAnnotation)
	return a.UID == b.UID && maps.Equal(x, y) && maps.Equal(a.Labels, b.Labels) && apiequality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
