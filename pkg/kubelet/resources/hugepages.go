package resources

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hugePages returns the container's limits of huge pages of the sizes that the node has, with the
// kernel's names of these.
func hugePages(pod *corev1.Pod, c *corev1.Container, capacity corev1.ResourceList) []*runtimeapi.HugepageLimit {
	var out []*runtimeapi.HugepageLimit
	for name := range capacity {
		if size, is := hugePageSize(name); is {
			q := limitOf(pod, c, name)
			out = append(out, &runtimeapi.HugepageLimit{PageSize: size, Limit: uint64(max(q.Value(), 0))})
		}
	}
	slices.SortFunc(out, func(a, b *runtimeapi.HugepageLimit) int { return strings.Compare(a.PageSize, b.PageSize) })
	return out
}

// podHugePages returns what a pod with these requests may have of huge pages: they are not
// overcommitted.
func podHugePages(requests corev1.ResourceList) map[string]int64 {
	var out map[string]int64
	for name, q := range requests {
		size, is := hugePageSize(name)
		if !is {
			continue
		}
		if out == nil {
			out = map[string]int64{}
		}
		out[size] = q.Value()
	}
	return out
}

// hugePageSize returns the kernel's name of the page size of a resource of huge pages.
func hugePageSize(name corev1.ResourceName) (string, bool) {
	text, is := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !is {
		return "", false
	}
	size, err := resource.ParseQuantity(text)
	return pageSize(size.Value()), err == nil
}

// setHugePages sets the limits of huge pages of a cgroup. No property of systemd stands for them.
func (f *FS) setHugePages(p place, g Group) error {
	if len(g.HugePages) == 0 {
		return nil
	}
	const controller = "hugetlb"
	base, file := filepath.Join(f.Mount, controller), ".limit_in_bytes"
	if f.unified {
		base, file = f.Mount, ".max"
	}
	if _, err := os.Stat(base); err != nil {
		f.warn(controller, "the host has no such cgroup controller; pods are not bounded by it as a whole", err)
		return nil
	}
	dir := base
	for _, name := range levels(f.dir(p)) {
		f.delegate(dir) // systemd leaves this controller alone
		dir = filepath.Join(dir, name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		if f.readOnly(controller, err) {
			return nil
		}
		return err
	}
	for size, limit := range g.HugePages {
		f.write(controller, dir, [][2]string{{controller + "." + size + file, strconv.FormatInt(limit, 10)}})
	}
	return nil
}

// pageSize formats a size as the kernel does: 2 MiB is 2MB.
func pageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for ; i < len(units)-1 && bytes%1024 == 0 && bytes > 0; i++ {
		bytes /= 1024
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}
