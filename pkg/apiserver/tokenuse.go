package apiserver

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/authn"
	"podium/pkg/scheme"
)

// The ConfigMap with the day since which the use of tokens in Secrets is recorded. The
// controller that removes unused ones trusts the records from that day on.
const (
	tokenTracking = "kube-apiserver-legacy-service-account-token-tracking"
	trackedSince  = "since"
)

// ensureTokenTracking creates the ConfigMap. It replaces a day that is no day, or is not
// over yet.
func (s *Server) ensureTokenTracking(ctx context.Context) error {
	if s.cfg.Authn.Issuer == nil {
		return nil
	}
	gvr, today := corev1.SchemeGroupVersion.WithResource("configmaps"), s.cfg.Authn.Issuer.Today()
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: tokenTracking}, Data: map[string]string{trackedSince: today}}
	change := func(obj scheme.Object) bool {
		have := obj.(*corev1.ConfigMap)
		if _, err := time.Parse(time.DateOnly, have.Data[trackedSince]); err == nil && have.Data[trackedSince] <= today {
			return false
		}
		have.Data = want.Data
		return true
	}
	if have := s.api.Recent(ctx, gvr, want.Namespace, want.Name); have != nil && !change(have.DeepCopyObject().(scheme.Object)) {
		return nil
	}
	return s.shape(ctx, gvr, want, change)
}

// recordTokenUse labels the Secrets whose tokens are used with the day. It blocks until ctx
// ends.
func (s *Server) recordTokenUse(ctx context.Context) {
	if s.cfg.Authn.Issuer == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case use := <-s.cfg.Authn.Issuer.Uses():
			if err := s.labelUse(ctx, use); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				s.cfg.Log.Warn("record the use of a token in a Secret failed", "namespace", use.Namespace, "secret", use.Secret, "err", err)
			}
		}
	}
}

func (s *Server) labelUse(ctx context.Context, use authn.Use) error {
	gvr, today := corev1.SchemeGroupVersion.WithResource("secrets"), s.cfg.Authn.Issuer.Today()
	secret, err := s.api.Get(ctx, gvr, use.Namespace, use.Secret)
	if err != nil || secret.GetLabels()[authn.LastUsed] == today {
		return err
	}
	_, err = s.api.Update(ctx, gvr, use.Namespace, use.Secret, func(obj scheme.Object) error {
		labels := obj.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[authn.LastUsed] = today
		obj.SetLabels(labels)
		return nil
	})
	return err
}
