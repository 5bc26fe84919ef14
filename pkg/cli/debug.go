package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"podium/pkg/cli/rest"
)

// debugOptions are the flags of debug.
type debugOptions struct {
	execOptions
	Image  string
	Name   string // of the container
	Of     string // the container whose processes it shows
	Attach bool
	attach bool // --attach was given
}

func newDebug(f *Factory, run func(context.Context, *debugOptions) error) *cobra.Command {
	o := &debugOptions{execOptions: execOptions{Factory: f}}
	cmd := &cobra.Command{
		Use:   "debug POD|node/NAME --image=IMAGE [-it] [-- COMMAND [ARG...]]",
		Short: "Create debugging sessions for troubleshooting workloads and nodes",
		Example: `  podium debug -it web-1 --image=busybox --target=web
  podium debug -it node/worker-1 --image=busybox -- chroot /host`,
		ValidArgsFunction: f.completeNames("pods", "pod", "node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 {
				dash = len(args)
			}
			switch {
			case dash != 1:
				return errors.New("you must specify one pod or node: podium debug POD --image=IMAGE")
			case o.Image == "":
				return errors.New("you must specify --image")
			}
			o.Target, o.Command, o.attach = args[0], args[1:], cmd.Flags().Changed("attach")
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Image, "image", "", "container image to use for the debug container")
	fs.StringVarP(&o.Name, "container", "c", "", "container name to use for the debug container (default: a generated one)")
	fs.StringVar(&o.Of, "target", "", "when debugging a pod: target processes in this container name")
	fs.BoolVar(&o.Attach, "attach", false, "wait for the container to start, then attach to it (default: if -i is given)")
	fs.BoolVarP(&o.Stdin, "stdin", "i", false, "keep standard input open on the container")
	fs.BoolVarP(&o.TTY, "tty", "t", false, "allocate a TTY for the debug container")
	fs.BoolVarP(&o.Quiet, "quiet", "q", false, "suppress informational messages")
	return cmd
}

func runDebug(ctx context.Context, o *debugOptions) error {
	kind, name, typed := strings.Cut(o.Target, "/")
	var pod *corev1.Pod
	var err error
	switch {
	case typed && (kind == "node" || kind == "nodes" || kind == "no"):
		pod, err = o.debugNode(ctx, name)
	default:
		pod, err = o.debugPod(ctx)
	}
	if err != nil || !(o.Attach || o.Stdin && !o.attach) {
		return err
	}
	return o.follow(ctx, pod, o.Name)
}

// container returns the debug container.
func (o *debugOptions) container() corev1.EphemeralContainerCommon {
	return corev1.EphemeralContainerCommon{
		Name: o.Name, Image: o.Image, Command: o.Command, Stdin: o.Stdin, TTY: o.TTY,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
}

// debugPod adds an ephemeral container to a pod.
func (o *debugOptions) debugPod(ctx context.Context) (*corev1.Pod, error) {
	c, err := o.Cluster()
	if err != nil {
		return nil, err
	}
	pods, err := findPods(ctx, o.Factory, c, o.Target)
	if err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "debugger-" + utilrand.String(5)
		o.note(fmt.Sprintf("Defaulting debug container name to %s.", o.Name))
	} else if slices.Contains(containersOf(&pods[0], true), o.Name) {
		return nil, fmt.Errorf("pod %s already has a container %q", pods[0].Name, o.Name)
	}
	debugger := corev1.EphemeralContainer{EphemeralContainerCommon: o.container(), TargetContainerName: o.Of}
	// Tracing the processes of another container needs this capability.
	debugger.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"ephemeralContainers": []any{debugger}}})
	if err != nil {
		return nil, err
	}
	k, err := c.Find(ctx, "pods")
	if err != nil {
		return nil, err
	}
	obj, err := c.Patch(ctx, k, pods[0].Namespace, pods[0].Name, types.StrategicMergePatchType, patch, nil, "ephemeralcontainers")
	if err != nil {
		return nil, err
	}
	pod, err := toPod(obj)
	return &pod, err
}

// debugNode creates a pod on a node, in the namespaces of the host, with the host's root
// file system at /host.
func (o *debugOptions) debugNode(ctx context.Context, node string) (*corev1.Pod, error) {
	c, err := o.Cluster()
	if err != nil {
		return nil, err
	}
	if o.Of != "" {
		return nil, errors.New("--target is incompatible with debugging a node")
	}
	namespace, _, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "debugger"
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		NodeName: node, HostNetwork: true, HostPID: true, HostIPC: true, RestartPolicy: corev1.RestartPolicyNever,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Volumes:     []corev1.Volume{{Name: "host-root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
		Containers:  []corev1.Container{corev1.Container(o.container())},
	}}
	pod.APIVersion, pod.Kind, pod.Name = "v1", "Pod", fmt.Sprintf("node-debugger-%s-%s", node, utilrand.String(5))
	pod.Labels = map[string]string{"app.kubernetes.io/managed-by": "kubectl-debug"}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host-root", MountPath: "/host"}}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, err
	}
	k, err := c.Find(ctx, "pods")
	if err != nil {
		return nil, err
	}
	obj, err := c.Create(ctx, k, namespace, &rest.Object{Object: content}, nil)
	if err != nil {
		return nil, err
	}
	o.note(fmt.Sprintf("Creating debugging pod %s with container %s on node %s.", pod.Name, o.Name, node))
	created, err := toPod(obj)
	return &created, err
}
