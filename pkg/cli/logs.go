package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cli/rest"
	"podium/pkg/client"
)

// logsOptions are the flags of logs.
type logsOptions struct {
	*Factory
	Target        string
	Labels        string
	Container     string
	AllContainers bool
	AllPods       bool
	Follow        bool
	Previous      bool
	Timestamps    bool
	Prefix        bool
	IgnoreErrors  bool
	Tail          int64
	LimitBytes    int64
	Since         time.Duration
	SinceTime     string
	MaxRequests   int
	Patience      time.Duration // of --pod-running-timeout
}

func newLogs(f *Factory, run func(context.Context, *logsOptions) error) *cobra.Command {
	o := &logsOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "logs POD | TYPE/NAME | -l SELECTOR [-c CONTAINER]",
		Short: "Print the logs for a container in a pod",
		Example: `  podium logs web-1 -f
  podium logs deployment/web --all-containers
  podium logs -l app=web --tail=20`,
		ValidArgsFunction: f.completeNames("pods", "pod", "deployment", "replicaset", "service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch len(args) {
			case 2:
				if o.Container != "" {
					return errors.New("only one of -c or an inline [CONTAINER] arg is allowed")
				}
				o.Container = args[1]
				fallthrough
			case 1:
				o.Target = args[0]
			}
			if len(args) > 2 || (o.Target == "") == (o.Labels == "") {
				return errors.New("expected 'logs (POD | TYPE/NAME) [CONTAINER]' or 'logs -l SELECTOR'")
			}
			if !cmd.Flags().Changed("tail") && o.Labels != "" {
				o.Tail = 10
			}
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.Labels, "selector", "l", "", "selector (label query) to filter on")
	fs.StringVarP(&o.Container, "container", "c", "", "print the logs of this container")
	fs.BoolVar(&o.AllContainers, "all-containers", false, "get all containers' logs in the pod")
	fs.BoolVar(&o.AllPods, "all-pods", false, "get logs from all pods of the resource, each line prefixed with its pod")
	fs.BoolVarP(&o.Follow, "follow", "f", false, "stream new entries as they arrive")
	fs.BoolVarP(&o.Previous, "previous", "p", false, "print the logs for the previous instance of the container")
	fs.BoolVar(&o.Timestamps, "timestamps", false, "include timestamps on each line")
	fs.BoolVar(&o.Prefix, "prefix", false, "prefix each log line with the pod and container name")
	fs.BoolVar(&o.IgnoreErrors, "ignore-errors", false, "when following logs, continue after errors of single containers")
	fs.Int64Var(&o.Tail, "tail", -1, "lines of recent log to display; -1: all (10 with a selector)")
	fs.Int64Var(&o.LimitBytes, "limit-bytes", 0, "maximum bytes of logs to return")
	fs.DurationVar(&o.Since, "since", 0, "only return logs newer than a relative duration (5m)")
	fs.StringVar(&o.SinceTime, "since-time", "", "only return logs after a specific date (RFC 3339)")
	patienceFlag(cmd, &o.Patience, 20*time.Second)
	fs.IntVar(&o.MaxRequests, "max-log-requests", 5, "maximum number of concurrent logs to follow with a selector")
	return cmd
}

// source is a container whose log is printed.
type source struct {
	pod       *corev1.Pod
	container string
}

func runLogs(ctx context.Context, o *logsOptions) error {
	query, err := o.query()
	if err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	sources, err := o.sources(ctx, c)
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		fmt.Fprintln(o.Err, "No resources found")
		return nil
	}
	if o.Follow && len(sources) > 1 {
		return o.followAll(ctx, c, sources, query)
	}
	for _, s := range sources {
		if err := o.copy(ctx, c, s, query, o.Out); err != nil {
			if !o.IgnoreErrors {
				return err
			}
			fmt.Fprintln(o.Err, Message(err))
		}
	}
	return nil
}

func (o *logsOptions) query() (url.Values, error) {
	q := url.Values{}
	flag := func(name string, on bool) {
		if on {
			q.Set(name, "true")
		}
	}
	flag("follow", o.Follow)
	flag("previous", o.Previous)
	flag("timestamps", o.Timestamps)
	if o.Tail >= 0 {
		q.Set("tailLines", strconv.FormatInt(o.Tail, 10))
	}
	if o.LimitBytes > 0 {
		q.Set("limitBytes", strconv.FormatInt(o.LimitBytes, 10))
	}
	switch {
	case o.Since > 0 && o.SinceTime != "":
		return nil, errors.New("at most one of --since or --since-time may be specified")
	case o.Since > 0:
		q.Set("sinceSeconds", strconv.FormatInt(max(int64(o.Since.Seconds()), 1), 10))
	case o.SinceTime != "":
		if _, err := time.Parse(time.RFC3339, o.SinceTime); err != nil {
			return nil, fmt.Errorf("--since-time: %w", err)
		}
		q.Set("sinceTime", o.SinceTime)
	}
	return q, nil
}

// sources returns the containers whose logs the flags select.
func (o *logsOptions) sources(ctx context.Context, c *rest.Cluster) ([]source, error) {
	pods, err := o.pods(ctx, c)
	if err != nil {
		return nil, err
	}
	var out []source
	for i := range pods {
		pod := &pods[i]
		if o.AllContainers {
			for _, name := range containersOf(pod, true) {
				out = append(out, source{pod, name})
			}
			continue
		}
		name, err := chooseContainer(pod, o.Container, func(text string) { fmt.Fprintln(o.Err, text) })
		if err != nil {
			return nil, err
		}
		out = append(out, source{pod, name})
	}
	return out, nil
}

// pods returns the selected pods: the first one of an object with several,
// unless --all-pods is set.
func (o *logsOptions) pods(ctx context.Context, c *rest.Cluster) ([]corev1.Pod, error) {
	if o.Labels != "" {
		namespace, _, err := o.Namespace()
		if err != nil {
			return nil, err
		}
		k, err := c.Find(ctx, "pods")
		if err != nil {
			return nil, err
		}
		return listPods(ctx, c, k, namespace, o.Labels)
	}
	pods, err := awaitPods(ctx, o.Factory, c, o.Target, o.Patience)
	if err != nil || len(pods) == 1 {
		return pods, err
	}
	if o.AllPods {
		o.Prefix = true
		return pods, nil
	}
	fmt.Fprintf(o.Err, "Found %d pods, using pod/%s\n", len(pods), pods[0].Name)
	return pods[:1], nil
}

// copy writes one container's log line by line, so that lines of several logs
// that are followed concurrently do not mix.
func (o *logsOptions) copy(ctx context.Context, c *rest.Cluster, s source, query url.Values, w io.Writer) error {
	q := url.Values{"container": {s.container}}
	for key, v := range query {
		q[key] = v
	}
	path := "/api/v1/namespaces/" + url.PathEscape(s.pod.Namespace) + "/pods/" + url.PathEscape(s.pod.Name) + "/log"
	body, err := c.Stream(ctx, client.Request{Path: path, Query: q})
	if err != nil {
		return err
	}
	defer body.Close()
	prefix := ""
	if o.Prefix {
		prefix = fmt.Sprintf("[pod/%s/%s] ", s.pod.Name, s.container)
	}
	r := bufio.NewReader(body)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			if _, werr := w.Write(append([]byte(prefix), line...)); werr != nil {
				return werr
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("logs of pod %s: %w", s.pod.Name, err)
		}
	}
}

// followAll follows several logs concurrently. The first error ends all, unless
// --ignore-errors is set.
func (o *logsOptions) followAll(ctx context.Context, c *rest.Cluster, sources []source, query url.Values) error {
	if len(sources) > o.MaxRequests {
		return fmt.Errorf("you are attempting to follow %d log streams, but maximum allowed concurrency is %d, use --max-log-requests to increase the limit", len(sources), o.MaxRequests)
	}
	out := &lockedWriter{w: o.Out}
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range sources {
		g.Go(func() error {
			err := o.copy(ctx, c, s, query, out)
			if err != nil && o.IgnoreErrors && ctx.Err() == nil {
				fmt.Fprintln(o.Err, Message(err))
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// lockedWriter is an io.Writer for concurrent use.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
