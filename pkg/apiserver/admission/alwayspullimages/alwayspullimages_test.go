package alwayspullimages_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/alwayspullimages"
)

func pod(policy corev1.PullPolicy, image string) *corev1.Pod {
	c := []corev1.Container{{Name: "c", Image: image, ImagePullPolicy: policy}}
	return &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: c, Containers: []corev1.Container{c[0]},
		Volumes: []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: policy}}}},
	}}
}

func TestPolicies(t *testing.T) {
	const always, never = corev1.PullAlways, corev1.PullNever
	for name, tc := range map[string]struct {
		reason    string
		old, pod  *corev1.Pod
		sub       string
		later     corev1.PullPolicy // what a later plugin sets; "": nothing
		want      corev1.PullPolicy
		wantError string
	}{
		"Create":       {pod: pod(never, "a"), want: always, reason: "containers of all sorts, and image volumes"},
		"NewImage":     {old: pod(never, "a"), pod: pod(never, "b"), want: always},
		"SameImage":    {old: pod(never, "a"), pod: pod(never, "a"), want: never, reason: "a pod of before the plugin was enabled can still be updated"},
		"Status":       {old: pod(never, "a"), pod: pod(never, "b"), sub: "status", want: never},
		"LaterMutated": {pod: pod(never, "a"), later: never, want: never, wantError: `pods is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: "Never": supported values: "Always"`},
	} {
		t.Run(name, func(t *testing.T) {
			a := &admission.Attributes{Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: tc.sub, Object: tc.pod}
			if tc.old != nil {
				a.Operation, a.Old = admission.Update, tc.old
			}
			later := admission.Plugin{Mutate: func(context.Context, *admission.Attributes) error {
				if tc.later != "" {
					tc.pod.Spec.Containers[0].ImagePullPolicy = tc.later
				}
				return nil
			}}
			err := admission.Chain{alwayspullimages.New(admission.Host{}), later}.Admit(t.Context(), a, nil)
			if text := fmt.Sprint(err); err == nil && tc.wantError != "" || err != nil && text != tc.wantError {
				t.Errorf("error %v, want %q", err, tc.wantError)
			}
			s := tc.pod.Spec
			if s.Containers[0].ImagePullPolicy != tc.want || tc.later == "" && (s.InitContainers[0].ImagePullPolicy != tc.want || s.Volumes[1].Image.PullPolicy != tc.want) {
				t.Errorf("policies %+v, want %s; %s", s, tc.want, tc.reason)
			}
		})
	}
}
