package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"podium/pkg/cli/rest"
)

// debugOptions are the flags of debug.
type debugOptions struct {
	execOptions
	selection // -f
	Image     string
	Name      string // of the container
	Of        string // the container whose processes it shows
	Pull      string
	Env       []string
	Arguments bool // the command is that of the image, with other arguments
	Profile   string
	Custom    string // file with a partial container
	Copy      copyFlags
	Attach    bool
	attach    bool // --attach was given
}

func newDebug(f *Factory, run func(context.Context, *debugOptions) error) *cobra.Command {
	o := &debugOptions{execOptions: execOptions{Factory: f}}
	cmd := &cobra.Command{
		Use:   "debug POD|node/NAME --image=IMAGE [-it] [-- COMMAND [ARG...]]",
		Short: "Create debugging sessions for troubleshooting workloads and nodes",
		Example: `  podium debug -it web-1 --image=busybox --target=web
  podium debug -it web-1 --copy-to=web-debug --container=web -- sh
  podium debug web-1 --copy-to=web-debug --set-image=*=busybox
  podium debug -it node/worker-1 --image=busybox -- chroot /host`,
		ValidArgsFunction: f.completeNames("pods", "pod", "node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 {
				dash = len(args)
			}
			o.Args, o.Command, o.attach = args[:dash], args[dash:], cmd.Flags().Changed("attach")
			if err := o.check(cmd); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Image, "image", "", "container image to use for the debug container")
	fs.StringVarP(&o.Name, "container", "c", "", "container name to use for the debug container (default: a generated one)")
	fs.StringVar(&o.Of, "target", "", "when debugging a pod: target processes in this container name")
	fs.StringArrayVar(&o.Env, "env", nil, "environment variable of the debug container, as KEY=VALUE; may be repeated")
	fs.StringVar(&o.Pull, "image-pull-policy", "", "image pull policy of the debug container: Always, IfNotPresent or Never")
	fs.BoolVar(&o.Arguments, "arguments-only", false, "use the arguments after -- as the arguments of the container, not as its command")
	fs.StringVar(&o.Profile, "profile", "general", "what the debug container may do: general, baseline, restricted, netadmin or sysadmin")
	fs.StringVar(&o.Custom, "custom", "", "JSON or YAML file with a partial container, which is merged into the debug container")
	fs.StringSliceVarP(&o.Files, "filename", "f", nil, "file, directory or URL with the pod or node to debug; -: standard input")
	o.Copy.add(cmd)
	fs.BoolVar(&o.Attach, "attach", false, "wait for the container to start, then attach to it (default: if -i is given)")
	fs.BoolVarP(&o.Stdin, "stdin", "i", false, "keep standard input open on the container")
	fs.BoolVarP(&o.TTY, "tty", "t", false, "allocate a TTY for the debug container")
	fs.BoolVarP(&o.Quiet, "quiet", "q", false, "suppress informational messages")
	return cmd
}

// check reports flags that do not go together.
func (o *debugOptions) check(cmd *cobra.Command) error {
	if err := o.Copy.check(cmd); err != nil {
		return err
	}
	changes := o.Copy.To != ""
	switch {
	case o.given() && len(o.Args) > 0 || !o.given() && len(o.Args) != 1:
		return errors.New("you must specify one pod or node, or -f: podium debug POD --image=IMAGE")
	case !changes && o.Image == "":
		return errors.New("you must specify --image")
	case changes && o.Of != "":
		return errors.New("--target is incompatible with --copy-to: use --share-processes instead")
	case changes && o.Image == "" && len(o.Copy.images) == 0 && len(o.Command) == 0:
		return errors.New("you must specify --image, --set-image or a command")
	case changes && o.Image == "" && o.Name == "" && len(o.Command) > 0:
		return errors.New("you must specify an existing container or a new image when specifying a command")
	case o.Image == "" && o.Name == "" && (o.Stdin || o.TTY || o.Attach || o.Pull != "" || len(o.Env) > 0 || o.Custom != ""):
		return errors.New("you must specify the container that the flags are for, or --image for a new one")
	case o.TTY && !o.Stdin:
		return errors.New("-i/--stdin is required for containers with -t/--tty=true")
	case o.Arguments && len(o.Command) == 0:
		return errors.New("--arguments-only requires arguments after --")
	}
	_, err := profileOf(o.Profile, false)
	return err
}

func runDebug(ctx context.Context, o *debugOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	pod, err := o.debug(ctx, c)
	if err != nil || !(o.Attach || o.Stdin && !o.attach) {
		return err
	}
	return o.follow(ctx, pod, o.Name)
}

// debug finds what to debug. It returns the pod that has the debug container.
func (o *debugOptions) debug(ctx context.Context, c *rest.Cluster) (*corev1.Pod, error) {
	t, err := o.subject(ctx, c)
	if err != nil {
		return nil, err
	}
	if t.Kind.Group == "" && t.Kind.Kind == "Node" {
		return o.debugNode(ctx, c, t.Name)
	}
	pods, err := findPodsOf(ctx, c, t)
	if err != nil {
		return nil, err
	}
	if o.Copy.To != "" {
		return o.debugCopy(ctx, c, &pods[0])
	}
	return o.debugPod(ctx, c, &pods[0])
}

// subject returns the object of the argument or of the file.
func (o *debugOptions) subject(ctx context.Context, c *rest.Cluster) (target, error) {
	if !o.given() && !strings.Contains(o.Args[0], "/") {
		o.Args[0] = "pods/" + o.Args[0]
	}
	found, err := o.resolve(ctx, o.Factory, false)
	if err != nil {
		return target{}, err
	}
	if len(found) != 1 {
		return target{}, fmt.Errorf("the files have %d objects: one pod or node can be debugged", len(found))
	}
	found[0].Object, err = c.Get(ctx, found[0].Kind, found[0].Namespace, found[0].Name)
	return found[0], err
}

// profile returns the profile of --profile.
func (o *debugOptions) profile(onNode bool) (profile, error) {
	if o.Profile == "legacy" {
		o.note("Warning: --profile=legacy is deprecated; use --profile=general")
	}
	return profileOf(o.Profile, onNode)
}

// nameContainer chooses a name for the debug container if none is given.
func (o *debugOptions) nameContainer() {
	if o.Name == "" {
		o.Name = "debugger-" + utilrand.String(5)
		o.note(fmt.Sprintf("Defaulting debug container name to %s.", o.Name))
	}
}

// container returns the debug container: a new one if c has no name.
func (o *debugOptions) container(c corev1.Container, p profile) (corev1.Container, error) {
	c.Image = cmp.Or(o.Image, c.Image)
	c.ImagePullPolicy = cmp.Or(corev1.PullPolicy(o.Pull), c.ImagePullPolicy)
	c.Stdin, c.TTY = o.Stdin, o.TTY
	if c.Name == "" {
		c.Name, c.TerminationMessagePolicy = o.Name, corev1.TerminationMessageReadFile
	}
	switch {
	case o.Arguments:
		c.Args = o.Command
	case len(o.Command) > 0:
		c.Command, c.Args = o.Command, nil
	}
	env, err := variables(o.Env)
	if err != nil {
		return c, err
	}
	for _, v := range env {
		c.Env = append(slices.DeleteFunc(c.Env, func(have corev1.EnvVar) bool { return have.Name == v.Name }), v)
	}
	c.SecurityContext = p.secure(c.SecurityContext)
	if o.Custom == "" {
		return c, nil
	}
	custom, err := o.openFile(o.Custom)
	if err != nil {
		return c, err
	}
	return customize(c, custom)
}

// debugPod adds an ephemeral container to a pod.
func (o *debugOptions) debugPod(ctx context.Context, c *rest.Cluster, pod *corev1.Pod) (*corev1.Pod, error) {
	p, err := o.profile(false)
	if err != nil {
		return nil, err
	}
	if slices.Contains(containersOf(pod, true), o.Name) {
		return nil, fmt.Errorf("pod %s already has a container %q", pod.Name, o.Name)
	}
	o.nameContainer()
	made, err := o.container(corev1.Container{}, p)
	if err != nil {
		return nil, err
	}
	debugger := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(made), TargetContainerName: o.Of}
	var order []any // the new one is the last, as kubectl has it
	for _, e := range pod.Spec.EphemeralContainers {
		order = append(order, map[string]any{"name": e.Name})
	}
	order = append(order, map[string]any{"name": o.Name})
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"ephemeralContainers": []any{debugger}, "$setElementOrder/ephemeralContainers": order,
	}})
	if err != nil {
		return nil, err
	}
	k, err := c.Find(ctx, "pods")
	if err != nil {
		return nil, err
	}
	obj, err := c.Patch(ctx, k, pod.Namespace, pod.Name, types.StrategicMergePatchType, patch, nil, "ephemeralcontainers")
	if err != nil {
		return nil, err
	}
	after, err := toPod(obj)
	return &after, err
}

// debugNode creates a pod on a node: if the profile says so, in the namespaces of the
// host and with its root file system at /host.
func (o *debugOptions) debugNode(ctx context.Context, c *rest.Cluster, node string) (*corev1.Pod, error) {
	switch {
	case o.Of != "":
		return nil, errors.New("--target is incompatible with debugging a node")
	case o.Copy.To != "":
		return nil, errors.New("--copy-to is incompatible with debugging a node")
	}
	namespace, _, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	p, err := o.profile(true)
	if err != nil {
		return nil, err
	}
	o.Name = cmp.Or(o.Name, "debugger")
	made, err := o.container(corev1.Container{}, p)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("node-debugger-%s-%s", node, utilrand.String(5)),
			Labels: map[string]string{"app.kubernetes.io/managed-by": "kubectl-debug"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: p.hostNamespaces, HostPID: p.hostNamespaces, HostIPC: p.hostNamespaces,
			RestartPolicy: corev1.RestartPolicyNever, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	if p.hostRoot {
		pod.Spec.Volumes = []corev1.Volume{{Name: "host-root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		made.VolumeMounts = append(made.VolumeMounts, corev1.VolumeMount{Name: "host-root", MountPath: "/host"})
	}
	pod.Spec.Containers = []corev1.Container{made}
	created, err := o.create(ctx, c, pod)
	if err == nil {
		o.note(fmt.Sprintf("Creating debugging pod %s with container %s on node %s.", pod.Name, o.Name, node))
	}
	return created, err
}

// create creates a pod.
func (o *debugOptions) create(ctx context.Context, c *rest.Cluster, pod *corev1.Pod) (*corev1.Pod, error) {
	obj, err := toObject(pod, core("Pod"))
	if err != nil {
		return nil, err
	}
	k, err := c.Find(ctx, "pods")
	if err != nil {
		return nil, err
	}
	made, err := c.Create(ctx, k, pod.Namespace, obj, nil)
	if err != nil {
		return nil, err
	}
	created, err := toPod(made)
	return &created, err
}
