package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/cri"
)

// linkPeriod is the interval between checks of the links to logs.
const linkPeriod = time.Minute

// maxFileName is the length in bytes of the longest name of a file.
const maxFileName = 255

// logged names a container as its logs do.
type logged struct {
	id                             string
	namespace, pod, uid, container string
	attempt                        string
}

// listed returns the names of a container that the runtime has listed.
func listed(c *runtimeapi.Container) logged {
	l := c.Labels
	attempt := c.Annotations[cri.AnnotationRestartCount]
	if attempt == "" {
		attempt = fmt.Sprint(c.Metadata.GetAttempt())
	}
	return logged{id: c.Id, namespace: l[cri.LabelPodNamespace], pod: l[cri.LabelPodName], uid: l[cri.LabelPodUID], container: l[cri.LabelContainerName], attempt: attempt}
}

// logged returns the names of a container of the pod.
func (w *base) logged(c *container) logged {
	return logged{id: c.id, namespace: w.pod.Namespace, pod: w.pod.Name, uid: string(w.uid), container: c.name, attempt: fmt.Sprint(c.attempt)}
}

// log returns the path of the container's log below the directory of all logs.
func (c logged) log() string {
	return path.Join(strings.Join([]string{c.namespace, c.pod, c.uid}, "_"), c.container, c.attempt+".log")
}

// link returns the name of the link to the container's log. Programs that collect logs know
// its form. To keep it short enough for a file it shortens the pod's name, which may be the
// longest.
func (c logged) link() string {
	rest := fmt.Sprintf("_%s_%s-%s.log", c.namespace, c.container, c.id)
	return c.pod[:min(len(c.pod), max(maxFileName-len(rest), 0))] + rest
}

// linkLog links to the log of a container that has been started. A log that the runtime
// creates later gets its link by keepLogLinks.
func (cs *containers) linkLog(c *container) {
	if err := cs.m.linkLog(cs.logged(c)); err != nil {
		cs.log.Warn("link to log failed", "container", c.name, "error", err)
	}
}

// linkLog links to the container's log, if there are links and there is a log. It may be
// called again.
func (m *Manager) linkLog(c logged) error {
	if m.cfg.LogLinksDir == "" {
		return nil
	}
	log := filepath.Join(m.cfg.LogsDir, c.log())
	if _, err := os.Lstat(log); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	root, err := m.openLinks()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Symlink(log, c.link()); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// unlinkLog removes the link to the container's log, if there is one.
func (m *Manager) unlinkLog(c logged) error {
	if m.cfg.LogLinksDir == "" {
		return nil
	}
	root, err := m.openLinks()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Remove(c.link()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (m *Manager) openLinks() (*os.Root, error) {
	if err := os.MkdirAll(m.cfg.LogLinksDir, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(m.cfg.LogLinksDir)
}

// keepLogLinks adds missing links to the logs of containers and removes those of containers
// that are gone, until ctx ends. It returns at once if there are to be none.
func (m *Manager) keepLogLinks(ctx context.Context) {
	if m.cfg.LogLinksDir == "" {
		return
	}
	for backoff.Sleep(ctx, linkPeriod) == nil {
		if err := m.checkLogLinks(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("check links to logs failed", "error", err)
		}
	}
}

func (m *Manager) checkLogLinks(ctx context.Context) error {
	list, err := m.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	var errs []error
	known := map[string]bool{}
	for _, item := range list.Containers {
		c := listed(item)
		known[c.link()] = true
		m.mu.Lock()
		w := m.workers[types.UID(c.uid)]
		m.mu.Unlock()
		if w != nil {
			errs = append(errs, m.linkLog(c))
		}
	}
	root, err := m.openLinks()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	errs = append(errs, err)
	for _, e := range entries {
		if name := e.Name(); !known[name] && m.danglingLog(root, name) {
			errs = append(errs, root.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// danglingLog reports whether name is a link to a log of ours that does not exist.
func (m *Manager) danglingLog(root *os.Root, name string) bool {
	log, err := root.Readlink(name)
	if err != nil || !strings.HasPrefix(log, m.cfg.LogsDir+"/") {
		return false
	}
	_, err = os.Lstat(log)
	return errors.Is(err, fs.ErrNotExist)
}
