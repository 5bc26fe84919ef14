package serviceaccount

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/podspec"
)

// mountableAnnotation, if true, restricts the pods of an account to the
// secrets that the account lists.
const mountableAnnotation = "kubernetes.io/enforce-mountable-secrets"

// checkMountable returns an error for the first Secret that spec refers to and
// account does not list. Beyond upstream it covers every volume that refers to
// a Secret, since a projected volume exposes it as a secret volume does.
func checkMountable(spec *corev1.PodSpec, account *corev1.ServiceAccount) error {
	check := func(name, format string, args ...any) error {
		if slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == name }) {
			return nil
		}
		return fmt.Errorf("%s secret.secretName=%q is not allowed because service account %s does not reference that secret",
			fmt.Sprintf(format, args...), name, account.Name)
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		for _, name := range podspec.VolumeSecrets(&v.VolumeSource) {
			if v.Secret != nil {
				if err := check(name, "volume with"); err != nil {
					return err
				}
			} else if err := check(name, "volume %s referencing", v.Name); err != nil {
				return err
			}
		}
	}
	if err := eachContainer(spec, func(kind string, c *corev1.Container) error { return mountableEnv(kind, c, check) }); err != nil {
		return err
	}
	for i, ref := range spec.ImagePullSecrets {
		if !slices.Contains(account.ImagePullSecrets, ref) {
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, ref.Name, account.Name)
		}
	}
	return nil
}

func mountableEnv(kind string, c *corev1.Container, check func(name, format string, args ...any) error) error {
	for _, env := range c.Env {
		if env.ValueFrom == nil || env.ValueFrom.SecretKeyRef == nil {
			continue
		}
		if err := check(env.ValueFrom.SecretKeyRef.Name, "%s %s with envVar %s referencing", kind, c.Name, env.Name); err != nil {
			return err
		}
	}
	for _, from := range c.EnvFrom {
		if from.SecretRef == nil {
			continue
		}
		if err := check(from.SecretRef.Name, "%s %s with envFrom referencing", kind, c.Name); err != nil {
			return err
		}
	}
	return nil
}

// eachContainer calls visit for each container until it returns an error.
func eachContainer(spec *corev1.PodSpec, visit func(kind string, c *corev1.Container) error) error {
	for i := range spec.InitContainers {
		if err := visit("init container", &spec.InitContainers[i]); err != nil {
			return err
		}
	}
	for i := range spec.Containers {
		if err := visit("container", &spec.Containers[i]); err != nil {
			return err
		}
	}
	for i := range spec.EphemeralContainers {
		if err := visit("ephemeral container", (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)); err != nil {
			return err
		}
	}
	return nil
}
