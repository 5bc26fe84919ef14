package apiserver

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/crd"
	"podium/pkg/client/revocation"
	"podium/pkg/scheme"
	"podium/pkg/storage/watchcache"
)

// followers returns the watch cache followers of the server's own components,
// by resource.
func (s *Server) followers() map[schema.GroupResource]watchcache.Follower {
	all := s.cfg.Access.followers()
	s.remotes.Follow(all)
	all[crd.Resource.GroupResource()] = s.crds
	all[flowSchemas.GroupResource()] = s.flow.Schemas()
	all[priorityLevels.GroupResource()] = s.flow.Levels()
	if r := s.cfg.Authn.Revocations; r != nil {
		all[schema.GroupResource{Resource: string(corev1.ResourceConfigMaps)}] = &publishedRevocations{r, s.cfg.Log}
	}
	return all
}

// publishedRevocations is a watch cache follower that reads the revocation
// lists which API servers publish in a ConfigMap.
type publishedRevocations struct {
	known *authn.Revocations
	log   *slog.Logger
}

// Replace implements watchcache.Follower.
func (p *publishedRevocations) Replace(all []scheme.Object) {
	p.learn("")
	for _, obj := range all {
		p.Put(obj)
	}
}

// Put implements watchcache.Follower.
func (p *publishedRevocations) Put(obj scheme.Object) {
	if obj.GetNamespace() == revocation.Namespace && obj.GetName() == revocation.ConfigMap {
		p.learn(obj.(*corev1.ConfigMap).Data[revocation.Key])
	}
}

// Remove implements watchcache.Follower.
func (p *publishedRevocations) Remove(namespace, name string) {
	if namespace == revocation.Namespace && name == revocation.ConfigMap {
		p.learn("")
	}
}

// learn merges the published list and logs what was not accepted.
func (p *publishedRevocations) learn(text string) {
	if err := p.known.Learn(text); err != nil {
		p.log.Warn("published revocation list not accepted", "err", err)
	}
}

// publishEvery is how long a new revocation list may remain unpublished.
const publishEvery = time.Second

// publishRevocations publishes revocation lists that this server has and the
// ConfigMap lacks. It blocks until ctx ends.
func (s *Server) publishRevocations(ctx context.Context) {
	known := s.cfg.Authn.Revocations
	if known == nil {
		return
	}
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if text, lacking := known.Unpublished(); lacking {
			if err := s.publish(ctx, text); err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("publish revocation list failed, retrying", "err", err)
			}
		}
	}
}

// publish writes the list to the ConfigMap unless it contains this list
// already.
func (s *Server) publish(ctx context.Context, text string) error {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: revocation.Namespace, Name: revocation.ConfigMap}, Data: map[string]string{revocation.Key: text},
	}
	return s.shape(ctx, corev1.SchemeGroupVersion.WithResource("configmaps"), want, func(obj scheme.Object) bool {
		have := obj.(*corev1.ConfigMap)
		if have.Data[revocation.Key] == text {
			return false
		}
		if have.Data == nil {
			have.Data = map[string]string{}
		}
		have.Data[revocation.Key] = text
		return true
	})
}
