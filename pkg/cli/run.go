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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// runFlags are the flags of run.
type runFlags struct {
	image, restart, pull string
	env, labels          []string
	port                 int32
	command              bool
	args                 []string
	session              execOptions
	attach, remove       bool
}

// removeTimeout bounds the delete of --rm.
const removeTimeout = 30 * time.Second

func newRun(f *Factory, run runCreateFunc) *cobra.Command {
	flags := runFlags{session: execOptions{Factory: f}}
	cmd := creator(f, func(ctx context.Context, o *createOptions) error {
		if !flags.session.Stdin && !flags.attach || o.DryRun != "" && o.DryRun != "none" {
			return run(ctx, o)
		}
		return flags.attached(ctx, o)
	}, &cobra.Command{
		Use:   "run NAME --image=IMAGE [-it] [--rm] [--command] [-- ARG...]",
		Short: "Run a particular image on the cluster",
		Example: `  podium run box --image=busybox --restart=Never -- sleep 60
  podium run box -it --rm --image=busybox --restart=Never -- sh`,
	}, func(name, ns string) (runtime.Object, schema.GroupVersionKind, error) {
		pod, err := flags.pod(name, ns)
		return pod, core("Pod"), err
	})
	inner := cmd.RunE
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		flags.args = args[1:]
		if flags.remove && !flags.session.Stdin && !flags.attach {
			return errors.New("--rm should only be used for attached containers")
		}
		return inner(cmd, args[:1])
	}
	flags.add(cmd)
	return cmd
}

func (r *runFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&r.image, "image", "", "image of the container")
	fs.StringVar(&r.restart, "restart", string(corev1.RestartPolicyAlways), "restart policy of the pod: Always, OnFailure or Never")
	fs.StringVar(&r.pull, "image-pull-policy", "", "image pull policy of the container: Always, IfNotPresent or Never")
	fs.StringArrayVar(&r.env, "env", nil, "environment variable of the container, as KEY=VALUE; may be repeated")
	fs.StringSliceVarP(&r.labels, "labels", "l", nil, "labels of the pod, as KEY=VALUE pairs (default run=NAME)")
	fs.Int32Var(&r.port, "port", 0, "port that the container exposes")
	fs.BoolVar(&r.command, "command", false, "use the arguments as the command of the container, not as its arguments")
	fs.BoolVarP(&r.session.Stdin, "stdin", "i", false, "keep standard input open on the container, and attach to it")
	fs.BoolVarP(&r.session.TTY, "tty", "t", false, "allocate a TTY for the container")
	fs.BoolVarP(&r.session.Quiet, "quiet", "q", false, "suppress informational messages")
	fs.BoolVar(&r.attach, "attach", false, "wait for the pod to start, then attach to it (default: if -i is given)")
	fs.BoolVar(&r.remove, "rm", false, "delete the pod after an attached session")
	_ = cmd.MarkFlagRequired("image")
}

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
	t := targets[0]
	obj, err := c.Create(ctx, t.Kind, t.Namespace, t.Object, o.query())
	if err != nil {
		return err
	}
	if r.remove {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout) // also after an interrupt
			defer cancel()
			_, deleteErr := c.Delete(ctx, t.Kind, t.Namespace, t.Name, metav1.DeleteOptions{})
			if deleteErr == nil {
				r.session.note(fmt.Sprintf("pod %q deleted", t.Name))
			}
			err = errors.Join(err, deleteErr)
		}()
	}
	pod, err := toPod(obj)
	if err != nil {
		return err
	}
	if err := r.session.follow(ctx, &pod, t.Name); err != nil || r.restart != string(corev1.RestartPolicyNever) {
		return err
	}
	code, err := r.session.exitCode(ctx, &pod, t.Name)
	if err == nil && code != 0 {
		err = &exitError{code: code, text: fmt.Sprintf("pod %s/%s terminated (exit code %d)", t.Namespace, t.Name, code)}
	}
	return err
}

func (r *runFlags) pod(name, namespace string) (*corev1.Pod, error) {
	labels, err := pairs("--labels", r.labels)
	if err != nil {
		return nil, err
	}
	if len(labels) == 0 {
		labels = map[string]string{"run": name}
	}
	c := corev1.Container{Name: name, Image: r.image, ImagePullPolicy: corev1.PullPolicy(r.pull), Stdin: r.session.Stdin, StdinOnce: r.session.Stdin, TTY: r.session.TTY}
	if r.command {
		c.Command = r.args
	} else {
		c.Args = r.args
	}
	for _, v := range r.env {
		key, value, ok := strings.Cut(v, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--env=%s: want KEY=VALUE", v)
		}
		c.Env = append(c.Env, corev1.EnvVar{Name: key, Value: value})
	}
	if r.port > 0 {
		c.Ports = []corev1.ContainerPort{{ContainerPort: r.port}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{c}, RestartPolicy: corev1.RestartPolicy(r.restart)},
	}, nil
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
