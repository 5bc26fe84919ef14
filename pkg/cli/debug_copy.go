package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/cli/rest"
)

// copyFlags are the flags of debug about the copy of a pod.
type copyFlags struct {
	To                           string
	Replace, SameNode, Share     bool
	Labels, Annotations, Init    bool // what the copy keeps
	Liveness, Readiness, Startup bool
	images                       []string
	setShare                     bool // --share-processes was given
}

func (o *copyFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.To, "copy-to", "", "create a copy of the pod with this name, instead of changing the pod")
	fs.BoolVar(&o.Replace, "replace", false, "with --copy-to: delete the original pod")
	fs.BoolVar(&o.SameNode, "same-node", false, "with --copy-to: schedule the copy on the node of the pod")
	fs.BoolVar(&o.Share, "share-processes", true, "with --copy-to: share one process namespace between the containers of the copy")
	fs.StringSliceVar(&o.images, "set-image", nil, "with --copy-to: images of the copy's containers, as CONTAINER=IMAGE pairs; *: all")
	fs.BoolVar(&o.Labels, "keep-labels", false, "with --copy-to: keep the labels of the pod")
	fs.BoolVar(&o.Annotations, "keep-annotations", false, "with --copy-to: keep the annotations of the pod")
	fs.BoolVar(&o.Init, "keep-init-containers", true, "with --copy-to: run the init containers of the pod")
	fs.BoolVar(&o.Liveness, "keep-liveness", false, "with --copy-to: keep the liveness probes")
	fs.BoolVar(&o.Readiness, "keep-readiness", false, "with --copy-to: keep the readiness probes")
	fs.BoolVar(&o.Startup, "keep-startup", false, "with --copy-to: keep the startup probes")
}

// check refuses the flags without --copy-to.
func (o *copyFlags) check(cmd *cobra.Command) error {
	o.setShare = cmd.Flags().Changed("share-processes")
	if o.To != "" {
		return nil
	}
	for _, name := range []string{
		"replace", "same-node", "share-processes", "set-image", "keep-labels", "keep-annotations", "keep-init-containers",
		"keep-liveness", "keep-readiness", "keep-startup",
	} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s may only be used with --copy-to", name)
		}
	}
	return nil
}

// debugCopy creates a copy of a pod with a debug container, or with changed ones. It
// returns no container if only images are changed.
func (o *debugOptions) debugCopy(ctx context.Context, c *rest.Cluster, pod *corev1.Pod) (*corev1.Pod, error) {
	made, err := o.copyOf(pod)
	if err != nil {
		return nil, err
	}
	created, err := o.create(ctx, c, made)
	if err != nil || !o.Copy.Replace {
		return created, err
	}
	k, err := c.Find(ctx, "pods")
	if err != nil {
		return nil, err
	}
	_, err = c.Delete(ctx, k, pod.Namespace, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	return created, err
}

// copyOf returns the copy of a pod.
func (o *debugOptions) copyOf(pod *corev1.Pod) (*corev1.Pod, error) {
	p, err := o.profile(false)
	if err != nil {
		return nil, err
	}
	made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: o.Copy.To, Namespace: pod.Namespace}, Spec: *pod.Spec.DeepCopy()}
	made.Spec.EphemeralContainers = nil
	if !o.Copy.SameNode {
		made.Spec.NodeName = ""
	}
	if o.Copy.Labels {
		made.Labels = pod.Labels
	}
	if o.Copy.Annotations || p.keep {
		made.Annotations = pod.Annotations
	}
	if !o.Copy.Init {
		made.Spec.InitContainers = nil
	}
	if !p.keep {
		o.Copy.dropProbes(made.Spec.InitContainers)
		o.Copy.dropProbes(made.Spec.Containers)
	}
	if o.Copy.setShare || !p.keep {
		made.Spec.ShareProcessNamespace = &o.Copy.Share
	}
	if err := setImages(made.Spec.Containers, o.Copy.images); err != nil {
		return nil, err
	}
	return made, o.addDebugger(made, p)
}

// dropProbes removes the probes that would restart or hide a container that is debugged.
func (o *copyFlags) dropProbes(containers []corev1.Container) {
	for i := range containers {
		c := &containers[i]
		if !o.Liveness {
			c.LivenessProbe = nil
		}
		if !o.Readiness {
			c.ReadinessProbe = nil
		}
		if !o.Startup {
			c.StartupProbe = nil
		}
	}
}

func setImages(containers []corev1.Container, values []string) error {
	for _, v := range values {
		name, image, ok := strings.Cut(v, "=")
		if !ok || name == "" || image == "" {
			return fmt.Errorf("--set-image=%s: want CONTAINER=IMAGE", v)
		}
		if name != "*" && !slices.ContainsFunc(containers, func(c corev1.Container) bool { return c.Name == name }) {
			return fmt.Errorf("unable to find container named %q", name)
		}
	}
	for i := range containers {
		for _, v := range values {
			name, image, _ := strings.Cut(v, "=")
			if name == containers[i].Name || name == "*" && !slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, containers[i].Name+"=") }) {
				containers[i].Image = image
			}
		}
	}
	return nil
}

// addDebugger adds the debug container, or makes one of a container that the pod has.
func (o *debugOptions) addDebugger(pod *corev1.Pod, p profile) error {
	if o.Image == "" && o.Name == "" {
		return nil // only images are changed
	}
	o.nameContainer()
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == o.Name })
	if i < 0 {
		if o.Image == "" {
			return errors.New("you must specify an image when creating a new container")
		}
		c, err := o.container(corev1.Container{}, p)
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		return err
	}
	c, err := o.container(pod.Spec.Containers[i], p)
	pod.Spec.Containers[i] = c
	return err
}
