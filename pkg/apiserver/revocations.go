package apiserver

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/authn"
	"podium/pkg/client/revocation"
	"podium/pkg/scheme"
	"podium/pkg/storage/watchcache"
)

// followers are told of what the server itself rests on.
func (s *Server) followers() map[schema.GroupResource]watchcache.Follower {
	all := s.cfg.Access.followers()
	if r := s.cfg.Authn.Revocations; r != nil {
		all[schema.GroupResource{Resource: string(corev1.ResourceConfigMaps)}] = &publishedRevocations{r, s.cfg.Log}
	}
	return all
}

// publishedRevocations follows the ConfigMap in which API servers publish their
// revocation lists.
type publishedRevocations struct {
	known *authn.Revocations
	log   *slog.Logger
}

func (p *publishedRevocations) Replace(all []scheme.Object) {
	p.learn("")
	for _, obj := range all {
		p.Put(obj)
	}
}

func (p *publishedRevocations) Put(obj scheme.Object) {
	if obj.GetNamespace() == revocation.Namespace && obj.GetName() == revocation.ConfigMap {
		p.learn(obj.(*corev1.ConfigMap).Data[revocation.Key])
	}
}

func (p *publishedRevocations) Remove(namespace, name string) {
	if namespace == revocation.Namespace && name == revocation.ConfigMap {
		p.learn("")
	}
}

func (p *publishedRevocations) learn(text string) {
	if err := p.known.Learn(text); err != nil {
		p.log.Warn("published revocation list not accepted", "err", err)
	}
}

// publishEvery is how soon others hear of a new list.
const publishEvery = time.Second

// publishRevocations adds to what is published what others lack, until ctx ends.
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
