package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/cli/rest"
)

// runFlags are the flags of run.
type runFlags struct {
	image, restart, pull          string
	env, labels, annotations      []string
	port                          int32
	command, privileged, leave    bool
	args                          []string
	session                       execOptions
	attach, remove, expose, stays bool
	removal                       deleteOptions // of --rm
	overrides
}

// removeTimeout bounds the deletion of --rm without --timeout.
const removeTimeout = 30 * time.Second

func newRun(f *Factory, run runCreateFunc) *cobra.Command {
	o := &createOptions{change: change{Factory: f}}
	r := &runFlags{session: execOptions{Factory: f}, removal: deleteOptions{Factory: f}}
	cmd := &cobra.Command{
		Use:   "run NAME --image=IMAGE [-it] [--rm] [--command] [-- ARG...]",
		Short: "Run a particular image on the cluster",
		Example: `  podium run box --image=busybox --restart=Never -- sleep 60
  podium run box -it --rm --image=busybox --restart=Never -- sh
  podium run web --image=nginx --port=80 --expose
  podium run box --image=busybox --overrides='{"spec":{"nodeName":"worker-1"}}'`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := r.check(cmd); err != nil {
			return err
		}
		name := args[0]
		r.args = args[1:]
		o.Make = func(namespace string) ([]*rest.Object, error) { return r.objects(name, namespace) }
		if !r.attaches() || o.DryRun != "none" {
			return run(cmd.Context(), o)
		}
		return r.attached(cmd.Context(), o)
	}
	o.commonFlags(cmd)
	r.add(cmd)
	return cmd
}

func (r *runFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&r.image, "image", "", "image of the container")
	fs.StringVar(&r.restart, "restart", string(corev1.RestartPolicyAlways), "restart policy of the pod: Always, OnFailure or Never")
	fs.StringVar(&r.pull, "image-pull-policy", "", "image pull policy of the container: Always, IfNotPresent or Never")
	fs.StringArrayVar(&r.env, "env", nil, "environment variable of the container, as KEY=VALUE; may be repeated")
	fs.StringSliceVarP(&r.labels, "labels", "l", nil, "labels of the pod, as KEY=VALUE pairs (default run=NAME)")
	fs.StringArrayVar(&r.annotations, "annotations", nil, "annotation of the pod, as KEY=VALUE; may be repeated")
	fs.Int32Var(&r.port, "port", 0, "port that the container exposes")
	fs.BoolVar(&r.expose, "expose", false, "create a ClusterIP Service for the pod; requires --port")
	fs.BoolVar(&r.command, "command", false, "use the arguments as the command of the container, not as its arguments")
	fs.BoolVar(&r.privileged, "privileged", false, "run the container in privileged mode")
	fs.BoolVarP(&r.session.Stdin, "stdin", "i", false, "keep standard input open on the container, and attach to it")
	fs.BoolVarP(&r.session.TTY, "tty", "t", false, "allocate a TTY for the container")
	fs.BoolVarP(&r.session.Quiet, "quiet", "q", false, "suppress informational messages")
	fs.BoolVar(&r.attach, "attach", false, "wait for the pod to start, then attach to it (default: if -i is given)")
	fs.BoolVar(&r.leave, "leave-stdin-open", false, "leave standard input open after the first attach completes")
	fs.DurationVar(&r.session.StartTimeout, "pod-running-timeout", time.Minute, "length of time to wait until the pod to attach to is running")
	fs.BoolVar(&r.remove, "rm", false, "delete the pod after an attached session")
	r.session.detachFlag(cmd)
	r.removal.deletionFlags(cmd)
	r.removal.waitFlag(cmd, false)
	r.overrideFlags(cmd)
	_ = cmd.MarkFlagRequired("image")
}

// check reports flags that do not go together.
func (r *runFlags) check(cmd *cobra.Command) error {
	r.stays = cmd.Flags().Changed("attach") && !r.attach
	switch {
	case r.session.TTY && !r.session.Stdin:
		return errors.New("-i/--stdin is required for containers with -t/--tty=true")
	case r.remove && !r.attaches():
		return errors.New("--rm should only be used for attached containers")
	case r.leave && !r.session.Stdin:
		return errors.New("--leave-stdin-open is only for containers with -i/--stdin")
	case r.expose && r.port == 0:
		return errors.New("--port must be set when exposing a service")
	case r.port < 0 || r.port > 65535 || r.port == 0 && cmd.Flags().Changed("port"):
		return fmt.Errorf("--port=%d: want a number from 1 to 65535", r.port)
	}
	for _, name := range []string{"cascade", "grace-period", "force", "wait", "timeout"} {
		if cmd.Flags().Changed(name) && !r.remove {
			return fmt.Errorf("--%s says how --rm deletes the pod: it requires --rm", name)
		}
	}
	if cmd.Flags().Changed("pod-running-timeout") && !r.attaches() {
		return errors.New("--pod-running-timeout is only for attached containers")
	}
	if _, err := parseKeys(r.session.DetachKeys); err != nil {
		return err
	}
	if err := r.checkOverrides(cmd); err != nil {
		return err
	}
	_, err := r.removal.options()
	return err
}

// attaches reports whether the command attaches to the container.
func (r *runFlags) attaches() bool { return r.attach || r.session.Stdin && !r.stays }

// attached creates the pod and attaches to it. With the restart policy Never, the exit
// code is that of the container.
func (r *runFlags) attached(ctx context.Context, o *createOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	targets, err := o.targets(ctx)
	if err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	var made []*rest.Object // the pod first
	if r.remove {
		defer func() { err = errors.Join(err, r.delete(ctx, c, targets[:len(made)])) }()
	}
	for _, t := range targets {
		if err := o.saveConfig(t.Object); err != nil {
			return err
		}
		obj, err := c.Create(ctx, t.Kind, t.Namespace, t.Object, o.query())
		if err != nil {
			return err
		}
		made = append(made, obj)
	}
	pod, err := toPod(made[0])
	if err != nil {
		return err
	}
	container := pod.Spec.Containers[0].Name // overrides may have renamed it
	if err := r.session.follow(ctx, &pod, container); err != nil || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return err
	}
	code, err := r.session.exitCode(ctx, &pod, container)
	if err == nil && code != 0 {
		err = &exitError{code: code, text: fmt.Sprintf("pod %s/%s terminated (exit code %d)", pod.Namespace, pod.Name, code)}
	}
	return err
}

// delete deletes what run has created, also after an interrupt.
func (r *runFlags) delete(ctx context.Context, c *rest.Cluster, targets []target) error {
	ctx = context.WithoutCancel(ctx)
	opts, err := r.removal.options()
	if err != nil {
		return err
	}
	requests, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	var errs []error
	var pending []ending
	for _, t := range targets {
		answer, err := c.Delete(requests, t.Kind, t.Namespace, t.Name, opts)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.session.note(fmt.Sprintf("%s %q deleted", t.Kind, t.Name))
		pending = append(pending, ending{t, uidIn(answer)})
	}
	if r.removal.Wait {
		errs = append(errs, r.removal.await(ctx, c, pending))
	}
	return errors.Join(errs...)
}

// objects returns the pod and, with --expose, its Service.
func (r *runFlags) objects(name, namespace string) ([]*rest.Object, error) {
	pod, err := r.pod(name, namespace)
	if err != nil {
		return nil, err
	}
	obj, err := toObject(pod, core("Pod"))
	if err != nil {
		return nil, err
	}
	if obj, err = r.override(obj); err != nil || !r.expose {
		return []*rest.Object{obj}, err
	}
	service, err := toObject(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: obj.GetLabels(),
			Ports:    []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: r.port, TargetPort: intstr.FromInt32(r.port)}},
		},
	}, core("Service"))
	return []*rest.Object{obj, service}, err
}

func (r *runFlags) pod(name, namespace string) (*corev1.Pod, error) {
	labels, err := pairs("--labels", r.labels)
	if err != nil {
		return nil, err
	}
	annotations, err := pairs("--annotations", r.annotations)
	if err != nil {
		return nil, err
	}
	if len(labels) == 0 {
		labels = map[string]string{"run": name}
	}
	c := corev1.Container{
		Name: name, Image: r.image, ImagePullPolicy: corev1.PullPolicy(r.pull),
		Stdin: r.session.Stdin, StdinOnce: r.session.Stdin && !r.leave, TTY: r.session.TTY,
	}
	if r.command {
		c.Command = r.args
	} else {
		c.Args = r.args
	}
	if c.Env, err = variables(r.env); err != nil {
		return nil, err
	}
	if r.port > 0 {
		c.Ports = []corev1.ContainerPort{{ContainerPort: r.port}}
	}
	if r.privileged {
		c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{c}, RestartPolicy: corev1.RestartPolicy(r.restart)},
	}, nil
}

// variables parses the values of --env.
func variables(texts []string) (env []corev1.EnvVar, err error) {
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--env=%s: want KEY=VALUE", text)
		}
		env = append(env, corev1.EnvVar{Name: key, Value: value})
	}
	return env, nil
}

// pairs parses KEY=VALUE pairs of a flag.
func pairs(flag string, texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%s=%s: want KEY=VALUE", flag, text)
		}
		out[key] = value
	}
	return out, nil
}
