package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/backoff"
	"podium/pkg/client/remotecommand"
)

// cpOptions are the flags of cp.
type cpOptions struct {
	*Factory
	From, To  endpoint
	Container string
	NoOwner   bool
	Retries   int // of a copy from a container; negative: no limit
}

// endpoint is the source or destination of a copy; without a pod it is on this
// machine.
type endpoint struct {
	Namespace, Pod, Path string
}

func newCopy(f *Factory, run func(context.Context, *cpOptions) error) *cobra.Command {
	o := &cpOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy files and directories to and from containers",
		Long: `Copy files and folders between this machine and a container. One side is
[NAMESPACE/]POD:PATH. The container needs tar.`,
		Example: `  podium cp ./page.html web-1:/srv/
  podium cp web-1:/var/log/app ./logs`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.From, o.To = parseEndpoint(args[0]), parseEndpoint(args[1])
			if (o.From.Pod == "") == (o.To.Pod == "") {
				return errors.New("one of src or dest must be a remote file specification: [NAMESPACE/]POD:PATH")
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.Container, "container", "c", "", "container name (default: the pod's default container, else the first)")
	cmd.Flags().BoolVar(&o.NoOwner, "no-preserve", false, "do not preserve the ownership and permissions of copied files")
	cmd.Flags().IntVar(&o.Retries, "retries", 0, "how often a copy from a container is resumed after an error; negative: no limit")
	return cmd
}

// parseEndpoint parses an argument. One that starts with / or . is a local path
// even if it contains a colon.
func parseEndpoint(arg string) endpoint {
	pod, file, remote := strings.Cut(arg, ":")
	if !remote || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") {
		return endpoint{Path: arg}
	}
	p := endpoint{Pod: pod, Path: file}
	if ns, name, ok := strings.Cut(pod, "/"); ok {
		p.Namespace, p.Pod = ns, name
	}
	return p
}

func runCopy(ctx context.Context, o *cpOptions) error {
	remote := o.From
	if o.To.Pod != "" {
		remote = o.To
	}
	if remote.Path == "" {
		return errors.New("the path in the container is missing: POD:PATH")
	}
	if remote.Namespace != "" {
		o.conn.namespace = remote.Namespace
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	pods, err := findPods(ctx, o.Factory, c, "pods/"+remote.Pod)
	if err != nil {
		return err
	}
	container, err := chooseContainer(&pods[0], o.Container, func(text string) { fmt.Fprintln(o.Err, text) })
	if err != nil {
		return err
	}
	if o.To.Pod != "" {
		return o.upload(ctx, &pods[0], container)
	}
	return o.download(ctx, &pods[0], container)
}

// run runs a command in the container. The error of a failed command includes
// its standard error.
func (o *cpOptions) run(ctx context.Context, pod *corev1.Pod, container string, in io.Reader, out io.Writer, command ...string) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	var complaint bytes.Buffer
	err = remotecommand.Stream(ctx, c.Client(), "/api/v1/namespaces/"+url.PathEscape(pod.Namespace)+"/pods/"+url.PathEscape(pod.Name)+"/exec",
		url.Values{"container": {container}, "command": command}, remotecommand.Streams{In: in, Out: out, Err: &complaint})
	var exit *remotecommand.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%s in the container: %s (%w)", command[0], strings.TrimSpace(complaint.String()), err)
	}
	return err
}

// upload streams a tar archive to tar in the container.
func (o *cpOptions) upload(ctx context.Context, pod *corev1.Pod, container string) error {
	src := filepath.Clean(o.From.Path)
	if _, err := os.Lstat(src); err != nil {
		return err
	}
	dir, base := path.Split(o.To.Path)
	intoFolder := base == "" || o.run(ctx, pod, container, nil, io.Discard, "test", "-d", o.To.Path) == nil
	if intoFolder {
		dir, base = o.To.Path, filepath.Base(src)
	}
	if dir == "" {
		dir = "."
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(packTree(w, src, base)) }()
	defer r.Close()
	command := []string{"tar", "-xmf", "-", "-C", dir}
	if o.NoOwner {
		command = []string{"tar", "--no-same-permissions", "--no-same-owner", "-xmf", "-", "-C", dir}
	}
	return o.run(ctx, pod, container, r, o.IO.Err, command...)
}

// packTree writes a file or directory as a tar archive in which its name is as.
func packTree(w io.Writer, src, as string) error {
	tw := tar.NewWriter(w)
	err := filepath.Walk(src, func(file string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, file)
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&os.ModeSymlink != 0 {
			if link, err = os.Readlink(file); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name = path.Join(as, filepath.ToSlash(rel))
		if err := tw.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.CopyN(tw, f, h.Size)
		return err
	})
	return errors.Join(err, tw.Close())
}

// download extracts the archive that tar in the container writes.
func (o *cpOptions) download(ctx context.Context, pod *corev1.Pod, container string) error {
	src := path.Clean(o.From.Path)
	if path.Base(src) == ".." {
		return fmt.Errorf("%s: give the name of the directory", o.From.Path) // the base name is also the name of the local copy
	}
	dst := o.To.Path
	if info, err := os.Stat(dst); err == nil && info.IsDir() {
		dst = filepath.Join(dst, path.Base(src))
	}
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := o.pack(ctx, src, w, func(out io.Writer, command ...string) error {
			return o.run(ctx, pod, container, nil, out, command...)
		})
		w.CloseWithError(err)
		done <- err
	}()
	err := unpackTree(r, path.Base(src), dst, func(text string) { fmt.Fprintln(o.Err, text) })
	r.CloseWithError(err)
	if ended := <-done; !errors.Is(ended, err) {
		err = errors.Join(ended, err)
	}
	return err
}

// counted counts the bytes that pass.
type counted struct {
	io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += int64(n)
	return n, err
}

// pack writes the archive that tar in the container makes of src. run runs a command
// there. After an error of the connection, pack goes on where it was, as often as
// --retries says.
func (o *cpOptions) pack(ctx context.Context, src string, w io.Writer, run func(out io.Writer, command ...string) error) error {
	out := &counted{Writer: w}
	command := []string{"tar", "-cf", "-", "-C", path.Dir(src), path.Base(src)}
	for try := 1; ; try++ {
		err := run(out, command...)
		var exit *remotecommand.ExitError
		if err == nil || errors.As(err, &exit) || errors.Is(err, io.ErrClosedPipe) || ctx.Err() != nil || o.Retries >= 0 && try > o.Retries {
			return err
		}
		fmt.Fprintf(o.Err, "Resuming copy at %d bytes, retry %d: %s\n", out.n, try, Message(err))
		if err := backoff.Sleep(ctx, retryPeriod); err != nil {
			return err
		}
		command = []string{"sh", "-c", `tar -cf - -C "$1" "$2" | tail -c +"$3"`, "sh", path.Dir(src), path.Base(src), strconv.FormatInt(out.n+1, 10)}
	}
}

// retryPeriod is the time after which a copy is resumed.
const retryPeriod = time.Second

// unpackTree extracts the files of an archive below dst. It does not trust the
// container: nothing may escape dst by its name or through a link, so it
// creates no links.
func unpackTree(r io.Reader, prefix, dst string, warn func(string)) error {
	tr := tar.NewReader(r)
	var root *os.Root
	defer func() {
		if root != nil {
			root.Close()
		}
	}()
	found := false
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			if !found {
				return errors.New("the container sent no files")
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the container's archive: %w", err)
		}
		found = true
		rel, ok := relative(h.Name, prefix)
		if !ok {
			warn(fmt.Sprintf("warning: %q is outside of the requested path, skipped", h.Name))
			continue
		}
		if rel == "." && h.Typeflag != tar.TypeDir { // a single file
			if h.Typeflag != tar.TypeReg {
				return fmt.Errorf("%q is neither a file nor a folder", h.Name)
			}
			if err := writeFile(os.OpenFile(dst, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, h.FileInfo().Mode().Perm()))(tr, h); err != nil {
				return err
			}
			continue // the archive's end must be read too
		}
		if root == nil {
			if err := os.MkdirAll(dst, 0o755); err != nil {
				return err
			}
			if root, err = os.OpenRoot(dst); err != nil {
				return err
			}
		}
		if err := unpackOne(root, tr, h, rel, warn); err != nil {
			return err
		}
	}
}

func relative(name, prefix string) (string, bool) {
	name = path.Clean(strings.TrimPrefix(name, "/"))
	if name == prefix {
		return ".", true
	}
	rel, ok := strings.CutPrefix(name, prefix+"/")
	return rel, ok && filepath.IsLocal(rel)
}

func unpackOne(root *os.Root, tr *tar.Reader, h *tar.Header, rel string, warn func(string)) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(rel, h.FileInfo().Mode().Perm()|0o700)
	case tar.TypeReg:
		if err := root.MkdirAll(path.Dir(rel), 0o755); err != nil {
			return err
		}
		return writeFile(root.OpenFile(rel, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, h.FileInfo().Mode().Perm()))(tr, h)
	}
	warn(fmt.Sprintf("warning: skipping %q: links and special files are not copied (%q)", h.Name, h.Linkname))
	return nil
}

func writeFile(f *os.File, err error) func(*tar.Reader, *tar.Header) error {
	return func(tr *tar.Reader, h *tar.Header) error {
		if err != nil {
			return err
		}
		_, err := io.CopyN(f, tr, h.Size)
		return errors.Join(err, f.Close())
	}
}
