package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

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
	File      []string      // of -f, with the object in place of Target
	Patience  time.Duration // of --pod-running-timeout

	DetachKeys   string        // of attach and run
	StartTimeout time.Duration // how long follow waits for the container; 0: no limit
}

func newExec(f *Factory, run func(context.Context, *execOptions) error) *cobra.Command {
	o := &execOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "exec POD|TYPE/NAME|-f FILE [-c CONTAINER] [-it] -- COMMAND [ARG...]",
		Short: "Execute a command in a container",
		Example: `  podium exec web-1 -- ls /
  podium exec -it deployment/web -- sh`,
		ValidArgsFunction: f.completeNames("pods", "pod", "deployment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			named := cmd.ArgsLenAtDash() // arguments before the command
			if named < 0 || named+len(o.File) != 1 || len(args) == named {
				return errors.New("you must specify one pod, then -- and at least one command for the container: podium exec POD -- COMMAND")
			}
			o.Target, o.Command = strings.Join(args[:named], ""), args[named:]
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringSliceVarP(&o.File, "filename", "f", nil, "file, directory or URL with the pod, or with an object that has pods; -: standard input")
	o.flags(cmd)
	return cmd
}

func newAttach(f *Factory, run func(context.Context, *execOptions) error) *cobra.Command {
	o := &execOptions{Factory: f}
	cmd := &cobra.Command{
		Use:               "attach POD|TYPE/NAME [-c CONTAINER] [-it]",
		Short:             "Attach to a running container",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeNames("pods", "pod", "deployment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Target = args[0]
			if _, err := parseKeys(o.DetachKeys); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	o.flags(cmd)
	o.detachFlag(cmd)
	return cmd
}

func (o *execOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Container, "container", "c", "", "container name (default: the pod's default container, else the first)")
	cmd.Flags().BoolVarP(&o.Stdin, "stdin", "i", false, "pass standard input to the container")
	cmd.Flags().BoolVarP(&o.TTY, "tty", "t", false, "standard input is a TTY")
	patienceFlag(cmd, &o.Patience, time.Minute)
	cmd.Flags().BoolVarP(&o.Quiet, "quiet", "q", false, "only print output from the remote session")
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
	if has := hasTTY(pod, container); o.TTY && !has {
		o.note(fmt.Sprintf("error: Unable to use a TTY - container %s did not allocate one", container))
		o.TTY = false
	} else if has && o.Stdin {
		o.TTY = true // the container has a TTY, so its output is a terminal's
	}
	if o.Stdin || o.TTY {
		o.note("If you don't see a command prompt, try pressing enter.")
	}
	return o.stream(ctx, pod, "attach", url.Values{"container": {container}})
}

// hasTTY reports whether a container of the pod has a TTY.
func hasTTY(pod *corev1.Pod, name string) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].TTY
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return c.TTY
		}
	}
	return false
}

func (o *execOptions) pod(ctx context.Context) (*corev1.Pod, string, error) {
	c, err := o.Cluster()
	if err != nil {
		return nil, "", err
	}
	if len(o.File) > 0 {
		s := selection{Files: o.File}
		targets, err := s.resolve(ctx, o.Factory, false)
		if err != nil {
			return nil, "", err
		}
		if len(targets) != 1 {
			return nil, "", fmt.Errorf("-f names %d objects: exec needs one", len(targets))
		}
		o.conn.namespace, o.Target = targets[0].Namespace, targets[0].String()
	}
	pods, err := awaitPods(ctx, o.Factory, c, o.Target, o.Patience)
	if err != nil {
		return nil, "", err
	}
	container, err := chooseContainer(&pods[0], o.Container, o.note)
	return &pods[0], container, err
}

// stream connects the command's streams to the container and blocks until the
// remote process exits. It sets a terminal to raw mode meanwhile.
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
			if subresource == "attach" {
				if s.In, err = newDetachReader(o.In, o.DetachKeys); err != nil {
					return err
				}
			}
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

// terminal reports whether r is a terminal, and its file descriptor.
func terminal(r io.Reader) (fd int, ok bool) {
	file, isFile := r.(*os.File)
	if !isFile {
		return 0, false
	}
	return int(file.Fd()), term.IsTerminal(int(file.Fd()))
}

// windowSizes sends the terminal's size at once and after every change, until
// the returned function is called.
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
