package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client/remotecommand"
)

// execOptions are the flags of exec and attach.
type execOptions struct {
	*Factory
	Target    string
	Container string
	Stdin     bool
	TTY       bool
	Quiet     bool
	Command   []string
}

func newExec(f *Factory, run func(context.Context, *execOptions) error) *cobra.Command {
	o := &execOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "exec POD|TYPE/NAME [-c CONTAINER] [-it] -- COMMAND [ARG...]",
		Short: "Run a command in a container",
		Example: `  podium exec web-1 -- ls /
  podium exec -it deployment/web -- sh`,
		ValidArgsFunction: f.completeNames("pods", "pod", "deployment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return errors.New("you must specify one pod, then -- and at least one command for the container: podium exec POD -- COMMAND")
			}
			o.Target, o.Command = args[0], args[1:]
			return run(cmd.Context(), o)
		},
	}
	o.flags(cmd)
	return cmd
}

func newAttach(f *Factory, run func(context.Context, *execOptions) error) *cobra.Command {
	o := &execOptions{Factory: f}
	cmd := &cobra.Command{
		Use:               "attach POD|TYPE/NAME [-c CONTAINER] [-it]",
		Short:             "Connect to a container's own process",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeNames("pods", "pod", "deployment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Target = args[0]
			return run(cmd.Context(), o)
		},
	}
	o.flags(cmd)
	return cmd
}

func (o *execOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Container, "container", "c", "", "this container (default: the pod's default, or its first)")
	cmd.Flags().BoolVarP(&o.Stdin, "stdin", "i", false, "pass on what is typed")
	cmd.Flags().BoolVarP(&o.TTY, "tty", "t", false, "give the command a terminal")
	cmd.Flags().BoolVarP(&o.Quiet, "quiet", "q", false, "print only what the command prints")
}

func (o *execOptions) note(text string) {
	if !o.Quiet {
		fmt.Fprintln(o.Err, text)
	}
}

func runExec(ctx context.Context, o *execOptions) error {
	pod, container, err := o.pod(ctx)
	if err != nil {
		return err
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return fmt.Errorf("cannot exec into a container in a completed pod; current phase is %s", pod.Status.Phase)
	}
	return o.stream(ctx, pod, "exec", url.Values{"container": {container}, "command": o.Command})
}

func runAttach(ctx context.Context, o *execOptions) error {
	pod, container, err := o.pod(ctx)
	if err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("cannot attach a container in a pod that is not running; current phase is %s", pod.Status.Phase)
	}
	for _, c := range pod.Spec.Containers {
		if c.Name != container {
			continue
		}
		if o.TTY && !c.TTY {
			o.note(fmt.Sprintf("error: Unable to use a TTY - container %s did not allocate one", container))
			o.TTY = false
		} else if c.TTY && !o.TTY && o.Stdin {
			o.TTY = true // the container's output is a terminal's anyhow
		}
	}
	if o.Stdin || o.TTY {
		o.note("If you don't see a command prompt, try pressing enter.")
	}
	return o.stream(ctx, pod, "attach", url.Values{"container": {container}})
}

func (o *execOptions) pod(ctx context.Context) (*corev1.Pod, string, error) {
	c, err := o.Cluster()
	if err != nil {
		return nil, "", err
	}
	pods, err := findPods(ctx, o.Factory, c, o.Target)
	if err != nil {
		return nil, "", err
	}
	container, err := chooseContainer(&pods[0], o.Container, o.note)
	return &pods[0], container, err
}

// stream connects the terminal, or whatever our streams are, to the container.
func (o *execOptions) stream(ctx context.Context, pod *corev1.Pod, subresource string, query url.Values) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	s := remotecommand.Streams{Out: o.Out, Err: o.IO.Err, TTY: o.TTY}
	if o.Stdin {
		s.In = o.In
	}
	fd, isTerminal := terminal(o.In)
	if o.TTY && !isTerminal {
		o.note("Unable to use a TTY - input is not a terminal or the right kind of file")
		s.TTY = false
	}
	if s.TTY {
		if o.Stdin {
			state, err := term.MakeRaw(fd)
			if err != nil {
				return fmt.Errorf("set the terminal up: %w", err)
			}
			defer func() { _ = term.Restore(fd, state) }()
		}
		sizes, stop := windowSizes(fd)
		defer stop()
		s.Resize = sizes
	}
	path := "/api/v1/namespaces/" + url.PathEscape(pod.Namespace) + "/pods/" + url.PathEscape(pod.Name) + "/" + subresource
	err = remotecommand.Stream(ctx, c.Client(), path, query, s)
	var exit *remotecommand.ExitError
	if errors.As(err, &exit) {
		return &exitError{code: exit.Code, text: exit.Error()}
	}
	return err
}

// terminal says whether a stream is one.
func terminal(r io.Reader) (fd int, ok bool) {
	file, isFile := r.(*os.File)
	if !isFile {
		return 0, false
	}
	return int(file.Fd()), term.IsTerminal(int(file.Fd()))
}

// windowSizes sends the terminal's size now and whenever it changes.
func windowSizes(fd int) (<-chan remotecommand.Size, func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	sizes := make(chan remotecommand.Size, 1)
	done := make(chan struct{})
	go func() {
		for {
			if w, h, err := term.GetSize(fd); err == nil {
				select {
				case sizes <- remotecommand.Size{Width: uint16(w), Height: uint16(h)}:
				case <-done:
					return
				}
			}
			select {
			case <-changed:
			case <-done:
				return
			}
		}
	}()
	return sizes, func() { signal.Stop(changed); close(done) }
}
