package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
	"podium/pkg/client"
)

func newClusterInfo(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster-info", Short: "Display cluster information", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runClusterInfo(cmd.Context(), f) },
	}
	cmd.AddCommand(newClusterInfoDump(f, runClusterInfoDump))
	return cmd
}

// runClusterInfo prints the addresses of the API server and, through its proxy, of
// the Services with the label kubernetes.io/cluster-service.
func runClusterInfo(ctx context.Context, f *Factory) error {
	cfg, err := f.clientConfig()
	if err != nil {
		return err
	}
	c, err := f.Cluster()
	if err != nil {
		return err
	}
	namespace := f.conn.namespace
	if namespace == "" {
		namespace = metav1.NamespaceSystem
	}
	list, err := client.For[*corev1.Service](c.Client()).In(namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/cluster-service=true"})
	if err != nil {
		return err
	}
	server := strings.TrimSuffix(cfg.Servers[0], "/")
	fmt.Fprintf(f.Out, "Kubernetes control plane is running at %s\n", server)
	for _, s := range list.Items {
		name := s.Labels["kubernetes.io/name"]
		if name == "" {
			name = s.Name
		}
		fmt.Fprintf(f.Out, "%s is running at %s\n", name, serviceLink(server, s))
	}
	fmt.Fprint(f.Out, "\nTo further debug and diagnose cluster problems, use 'podium cluster-info dump'.\n")
	return nil
}

// serviceLink returns the URLs of a Service: those of its load balancer, or the one
// of its first port through the API server.
func serviceLink(server string, s *corev1.Service) string {
	if in := s.Status.LoadBalancer.Ingress; len(in) > 0 {
		host := in[0].IP
		if host == "" {
			host = in[0].Hostname
		}
		var link string
		for _, p := range s.Spec.Ports {
			link += fmt.Sprintf("http://%s:%d ", host, p.Port)
		}
		return link
	}
	name := s.Name
	if len(s.Spec.Ports) > 0 {
		port := s.Spec.Ports[0]
		secure := port.Name == "https" || port.Port == 443
		if port.Name != "" || secure {
			name += ":" + port.Name
		}
		if secure {
			name = "https:" + name
		}
	}
	return fmt.Sprintf("%s/api/v1/namespaces/%s/services/%s/proxy", server, s.Namespace, name)
}

// dumpOptions are the flags of cluster-info dump.
type dumpOptions struct {
	*Factory
	Directory     string
	Namespaces    []string
	AllNamespaces bool
	printing
}

func newClusterInfoDump(f *Factory, run func(context.Context, *dumpOptions) error) *cobra.Command {
	o := &dumpOptions{Factory: f}
	cmd := &cobra.Command{
		Use: "dump", Short: "Dump relevant information for debugging and diagnosis", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	cmd.Flags().StringVar(&o.Directory, "output-directory", "", "where to write the files; empty or -: standard output")
	cmd.Flags().StringSliceVar(&o.Namespaces, "namespaces", nil, "namespaces to dump, separated by commas (default: kube-system and that of the context)")
	cmd.Flags().BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "dump all namespaces")
	o.printingFlags(cmd, "print the objects: ", "json")
	return cmd
}

// dumped are the types of which cluster-info dump writes the objects of a namespace,
// with the name of their file.
var dumped = []struct{ word, file string }{
	{"events", "events"}, {"replicationcontrollers", "replication-controllers"}, {"services", "services"},
	{"daemonsets.apps", "daemonsets"}, {"deployments.apps", "deployments"}, {"replicasets.apps", "replicasets"}, {"pods", "pods"},
}

func runClusterInfoDump(ctx context.Context, o *dumpOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	if err := o.dump(ctx, c, "nodes", "", "nodes"); err != nil {
		return err
	}
	namespaces, err := o.namespaces(ctx, c)
	if err != nil {
		return err
	}
	for _, ns := range namespaces {
		for _, d := range dumped {
			if err := o.dump(ctx, c, d.word, ns, filepath.Join(ns, d.file)); err != nil {
				return err
			}
		}
		if err := o.dumpLogs(ctx, c, ns); err != nil {
			return err
		}
	}
	if o.Directory != "" && o.Directory != "-" {
		fmt.Fprintf(o.Out, "Cluster info dumped to %s\n", o.Directory)
	}
	return nil
}

func (o *dumpOptions) namespaces(ctx context.Context, c *rest.Cluster) ([]string, error) {
	if !o.AllNamespaces {
		if len(o.Namespaces) > 0 {
			return o.Namespaces, nil
		}
		own, _, err := o.Namespace()
		return []string{metav1.NamespaceSystem, own}, err
	}
	list, err := client.For[*corev1.Namespace](c.Client()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, ns := range list.Items {
		out = append(out, ns.Name)
	}
	return out, nil
}

// dump writes the objects of a type to a file below the directory, or to standard
// output.
func (o *dumpOptions) dump(ctx context.Context, c *rest.Cluster, word, namespace, file string) error {
	k, err := c.Find(ctx, word)
	if err != nil {
		return err
	}
	list, err := c.List(ctx, k, namespace, nil)
	if err != nil {
		return err
	}
	printer, err := output.New(o.options())
	if err != nil {
		return err
	}
	suffix := ".txt"
	if format := o.format(); format == "json" || format == "yaml" {
		suffix = "." + format
	}
	items := make([]any, len(list.Items))
	for i := range list.Items {
		items[i] = list.Items[i].Object
	}
	obj := &rest.Object{Object: list.Object}
	obj.Object["items"] = items
	return o.write(file+suffix, func(w io.Writer) error { return printer.Print(w, obj) })
}

// dumpLogs writes the logs of all containers in a namespace, a file for each pod. An
// error of one log is written in its place.
func (o *dumpOptions) dumpLogs(ctx context.Context, c *rest.Cluster, namespace string) error {
	pods, err := client.For[*corev1.Pod](c.Client()).In(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	logs := &logsOptions{Factory: o.Factory}
	for _, pod := range pods.Items {
		err := o.write(filepath.Join(namespace, pod.Name, "logs.txt"), func(w io.Writer) error {
			for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
				fmt.Fprintf(w, "==== START logs for container %s of pod %s/%s ====\n", container.Name, pod.Namespace, pod.Name)
				if err := logs.copy(ctx, c, source{pod, container.Name}, url.Values{}, w); err != nil {
					fmt.Fprintf(w, "Request log error: %s\n", err)
				}
				fmt.Fprintf(w, "==== END logs for container %s of pod %s/%s ====\n", container.Name, pod.Namespace, pod.Name)
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *dumpOptions) write(name string, print func(io.Writer) error) error {
	if o.Directory == "" || o.Directory == "-" {
		return print(o.Out)
	}
	path := filepath.Join(o.Directory, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := print(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
