// Package serviceaccount is the admission plugin ServiceAccount: it gives a new
// pod its service account, a mounted token, and the account's image pull
// secrets, and checks that the pod, and an ephemeral container that it gets later,
// may refer to the Secrets that they name.
package serviceaccount

import (
	"context"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"

	"podium/pkg/apiserver/admission"
	"podium/pkg/podspec"
)

const (
	defaultAccount = "default"
	accountMount   = "/var/run/secrets/kubernetes.io/serviceaccount"
	accountVolume  = "kube-api-access-"
	rootCAs        = "kube-root-ca.crt"

	// An odd number, by which upstream's tools recognise a token that was
	// mounted without being asked for.
	accountTokenSeconds = 3607

	accountTries = 10
	accountWait  = 100 * time.Millisecond
)

// New returns the plugin.
func New(h admission.Host) admission.Plugin {
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create, admission.Update},
		Mutate: func(ctx context.Context, a *admission.Attributes) error {
			if !creates(a) {
				return nil
			}
			return mutate(ctx, h.Objects, a, a.Object.(*corev1.Pod))
		},
		Validate: func(ctx context.Context, a *admission.Attributes) error {
			switch {
			case creates(a):
				return validate(ctx, h.Objects, a, a.Object.(*corev1.Pod))
			case addsContainers(a):
				return validateAdded(ctx, h.Objects, a, a.Object.(*corev1.Pod))
			}
			return nil
		},
	}
}

// creates reports whether the request creates a pod.
func creates(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Resource.GroupResource() == corev1.Resource("pods") && a.Subresource == ""
}

// addsContainers reports whether the request adds ephemeral containers to a pod.
func addsContainers(a *admission.Attributes) bool {
	return a.Operation == admission.Update && a.Resource.GroupResource() == corev1.Resource("pods") && a.Subresource == "ephemeralcontainers"
}

// mutate also checks the pod, so that a refusal because of the account precedes
// validation errors of the pod's fields.
func mutate(ctx context.Context, objects admission.Objects, a *admission.Attributes, pod *corev1.Pod) error {
	if isMirror(pod) {
		return checkMirror(a, pod) // the mirror of a static pod, which has no identity of its own
	}
	spec := &pod.Spec
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = defaultAccount
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	account, err := awaitAccount(ctx, objects, a.Namespace, spec.ServiceAccountName)
	if err != nil {
		return lookupFailed(a, pod, err)
	}
	if err := checkAccount(a, spec, account); err != nil {
		return err
	}
	if len(spec.ImagePullSecrets) == 0 {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, account.ImagePullSecrets...)
	}
	if automounts(spec, account) {
		mountToken(spec)
	}
	return nil
}

// validate checks the pod again: plugins that run later may have changed it.
func validate(ctx context.Context, objects admission.Objects, a *admission.Attributes, pod *corev1.Pod) error {
	if isMirror(pod) {
		return checkMirror(a, pod)
	}
	account, err := accountOf(ctx, objects, a, pod)
	if err != nil {
		return err
	}
	return checkAccount(a, &pod.Spec, account)
}

// validateAdded checks the ephemeral containers of a pod: the rest of the pod was
// checked when it was created, by what its account listed then.
func validateAdded(ctx context.Context, objects admission.Objects, a *admission.Attributes, pod *corev1.Pod) error {
	account, err := accountOf(ctx, objects, a, pod)
	if err != nil {
		return err
	}
	return checkAccount(a, &corev1.PodSpec{EphemeralContainers: pod.Spec.EphemeralContainers}, account)
}

// accountOf returns the service account that the pod names.
func accountOf(ctx context.Context, objects admission.Objects, a *admission.Attributes, pod *corev1.Pod) (*corev1.ServiceAccount, error) {
	name := pod.Spec.ServiceAccountName
	if name == "" {
		return nil, admission.Forbidden(a, "no service account specified for pod %s/%s", a.Namespace, pod.Name)
	}
	account, err := admission.Cached(ctx, objects, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), a.Namespace, name)
	if err != nil {
		return nil, lookupFailed(a, pod, err)
	}
	return account.(*corev1.ServiceAccount), nil
}

// isMirror reports whether the pod is the mirror of a static pod.
func isMirror(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

func lookupFailed(a *admission.Attributes, pod *corev1.Pod, err error) error {
	return admission.Forbidden(a, "error looking up service account %s/%s: %w", a.Namespace, pod.Spec.ServiceAccountName, err)
}

// checkAccount refuses Secrets that a restricted account does not list.
func checkAccount(a *admission.Attributes, spec *corev1.PodSpec, account *corev1.ServiceAccount) error {
	if limited, _ := strconv.ParseBool(account.Annotations[mountableAnnotation]); limited {
		if err := checkMountable(spec, account); err != nil {
			return admission.Forbidden(a, "%w", err)
		}
	}
	return nil
}

// checkMirror refuses references to service accounts and Secrets in a mirror
// pod: a kubelet reports its static pods this way, and must not gain access to
// Secrets by it.
func checkMirror(a *admission.Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return admission.Forbidden(a, "a mirror pod may not reference service accounts")
	}
	for range podspec.Secrets(&pod.Spec) {
		return admission.Forbidden(a, "a mirror pod may not reference secrets")
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				return admission.Forbidden(a, "a mirror pod may not use ServiceAccountToken volume projections")
			}
		}
	}
	return nil
}

// awaitAccount returns the account. It blocks for up to a second until the
// default account exists, which a controller creates just after the namespace.
func awaitAccount(ctx context.Context, objects admission.Objects, namespace, name string) (*corev1.ServiceAccount, error) {
	for try := 1; ; try++ {
		obj, err := objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), namespace, name)
		if err == nil {
			return obj.(*corev1.ServiceAccount), nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
		err = apierrors.NewNotFound(corev1.Resource("serviceaccount"), name)
		if name != defaultAccount || try == accountTries {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(accountWait):
		}
	}
}

// automounts reports whether to mount a token: the pod's setting takes
// precedence over the account's; the default is true.
func automounts(spec *corev1.PodSpec, account *corev1.ServiceAccount) bool {
	for _, setting := range []*bool{spec.AutomountServiceAccountToken, account.AutomountServiceAccountToken} {
		if setting != nil {
			return *setting
		}
	}
	return true
}

// mountToken mounts token, CA and namespace at the conventional path, in each
// container without a mount there.
func mountToken(spec *corev1.PodSpec) {
	mount := corev1.VolumeMount{Name: accountVolume + rand.String(5), ReadOnly: true, MountPath: accountMount}
	used := false
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if !slices.ContainsFunc(list[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == accountMount }) {
				list[i].VolumeMounts = append(list[i].VolumeMounts, mount)
				used = true
			}
		}
	}
	if used {
		spec.Volumes = append(spec.Volumes, tokenVolume(mount.Name))
	}
}

// tokenVolume returns the projected volume with token, CA and namespace.
func tokenVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o644)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(accountTokenSeconds))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCAs},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     "namespace",
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}}
}
