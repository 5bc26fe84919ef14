package registry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"

	"podium/pkg/apiserver/registry/podspec"
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

// admitAccount gives a new pod its service account's identity and pull secrets.
func admitAccount(ctx context.Context, b Backend, pod *corev1.Pod) error {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return checkMirror(pod) // a static pod's image in the API, which has no identity of its own
	}
	spec := &pod.Spec
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = defaultAccount
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	account, err := lookUpAccount(ctx, b, pod.Namespace, spec.ServiceAccountName)
	if err != nil {
		return forbidden(pod, fmt.Errorf("error looking up service account %s/%s: %w", pod.Namespace, spec.ServiceAccountName, err))
	}
	if limited, _ := strconv.ParseBool(account.Annotations[mountableAnnotation]); limited {
		if err := checkMountable(spec, account); err != nil {
			return forbidden(pod, err)
		}
	}
	if len(spec.ImagePullSecrets) == 0 {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, account.ImagePullSecrets...)
	}
	if automounts(spec, account) {
		mountToken(spec)
	}
	return nil
}

// checkMirror: a kubelet may show which static pods it runs, and not read
// secrets that way.
func checkMirror(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return forbidden(pod, errors.New("a mirror pod may not reference service accounts"))
	}
	for range podspec.Secrets(&pod.Spec) {
		return forbidden(pod, errors.New("a mirror pod may not reference secrets"))
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				return forbidden(pod, errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
			}
		}
	}
	return nil
}

// lookUpAccount waits a moment for the default account, which a controller
// makes just after the namespace.
func lookUpAccount(ctx context.Context, b Backend, namespace, name string) (*corev1.ServiceAccount, error) {
	for try := 1; ; try++ {
		obj, err := b.Get(ctx, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), namespace, name)
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

// automounts: the pod's word counts, then the account's.
func automounts(spec *corev1.PodSpec, account *corev1.ServiceAccount) bool {
	for _, word := range []*bool{spec.AutomountServiceAccountToken, account.AutomountServiceAccountToken} {
		if word != nil {
			return *word
		}
	}
	return true
}

// mountToken mounts token, CA and namespace where clients look for them, in
// each container that has nothing mounted there.
func mountToken(spec *corev1.PodSpec) {
	mount := corev1.VolumeMount{Name: accountVolume + rand.String(5), ReadOnly: true, MountPath: accountMount}
	used := false
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if !mounted(list[i].VolumeMounts, accountMount) {
				list[i].VolumeMounts = append(list[i].VolumeMounts, mount)
				used = true
			}
		}
	}
	if used {
		spec.Volumes = append(spec.Volumes, tokenVolume(mount.Name))
	}
}

func mounted(mounts []corev1.VolumeMount, path string) bool {
	for i := range mounts {
		if mounts[i].MountPath == path {
			return true
		}
	}
	return false
}

func tokenVolume(name string) corev1.Volume {
	seconds, mode := int64(accountTokenSeconds), int32(0o644)
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: &mode,
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
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
