// Package imagelocality prefers nodes that already have the images of the pod.
package imagelocality

import (
	"slices"
	"strings"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// Sums of scaled image sizes, in bytes: up to minSize the score is 0, from
// maxSize per container on it is MaxNodeScore.
const (
	mb      = 1 << 20
	minSize = 23 * mb
	maxSize = 1000 * mb
)

// Plugin scores nodes by the sizes of the pod's images in node.status.images. Each size is
// scaled by the fraction of nodes with the image, so that the pods of a new image do not all
// follow the first one.
type Plugin struct{}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "ImageLocality" }

// Reads returns the images of the pod's containers.
func (Plugin) Reads(pod *snapshot.Pod) []any {
	out := make([]any, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		out = append(out, &pod.Spec.InitContainers[i].Image)
	}
	for i := range pod.Spec.Containers {
		out = append(out, &pod.Spec.Containers[i].Image)
	}
	return out
}

// images returns the image of each container, with its tag.
func images(pod *snapshot.Pod) []string {
	out := make([]string, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		out = append(out, tagged(pod.Spec.InitContainers[i].Image))
	}
	for i := range pod.Spec.Containers {
		out = append(out, tagged(pod.Spec.Containers[i].Image))
	}
	return out
}

// tagged adds the tag latest to an image name without tag or digest.
func tagged(image string) string {
	if strings.LastIndex(image, ":") <= strings.LastIndex(image, "/") {
		return image + ":latest"
	}
	return image
}

// PreScore skips no pod.
func (Plugin) PreScore(pod *snapshot.Pod) framework.ClusterScore {
	list := images(pod)
	return &score{images: list, having: make([]int, len(list)), sizes: map[int32][]int64{}}
}

// score counts the nodes that have each image.
type score struct {
	images []string

	nodes  int
	exists []bool            // by row
	sizes  map[int32][]int64 // by row, then by image, of the nodes with some of the images
	having []int             // by image: number of nodes

	stale bool    // counts changed since byRow was computed
	byRow []int64 // the scores
}

// Update implements framework.ClusterScore.
func (s *score) Update(n snapshot.Node) {
	row := n.Row()
	if more := row + 1 - len(s.exists); more > 0 {
		s.exists = append(s.exists, make([]bool, more)...)
	}
	var sizes []int64
	if n.Exists() {
		sizes = s.sizesOn(n)
	}
	var old []int64
	if len(s.sizes) > 0 {
		old = s.sizes[int32(row)]
	}
	if s.exists[row] == n.Exists() && slices.Equal(old, sizes) {
		return
	}
	s.stale = true
	if s.exists[row] {
		s.nodes--
	}
	if s.exists[row] = n.Exists(); s.exists[row] {
		s.nodes++
	}
	s.count(old, -1)
	s.count(sizes, 1)
	if sizes != nil {
		s.sizes[int32(row)] = sizes
	} else {
		delete(s.sizes, int32(row))
	}
}

// sizesOn returns the sizes of the images on a node, 0 for those that it does not have; nil if
// it has none of them.
func (s *score) sizesOn(n snapshot.Node) []int64 {
	var sizes []int64
	for _, present := range n.Object().Status.Images {
		for i, want := range s.images {
			if slices.Contains(present.Names, want) {
				if sizes == nil {
					sizes = make([]int64, len(s.images))
				}
				sizes[i] = present.SizeBytes
			}
		}
	}
	return sizes
}

func (s *score) count(sizes []int64, sign int) {
	for i, size := range sizes {
		if size > 0 {
			s.having[i] += sign
		}
	}
}

// Empty reports whether no node has any of the images.
func (s *score) Empty() bool { return len(s.sizes) == 0 }

// Score implements framework.ClusterScore.
func (s *score) Score(rows []int32, scores []int64) {
	if s.stale {
		s.byRow, s.stale = make([]int64, len(s.exists)), false
		for row, sizes := range s.sizes {
			s.byRow[row] = s.compute(sizes)
		}
	}
	for i, row := range rows {
		scores[i] = s.byRow[row]
	}
}

func (s *score) compute(sizes []int64) int64 {
	var sum int64
	for i, size := range sizes {
		sum += int64(float64(size) * (float64(s.having[i]) / float64(s.nodes)))
	}
	most := maxSize * int64(len(s.images))
	sum = min(max(sum, minSize), most)
	return framework.MaxNodeScore * (sum - minSize) / (most - minSize)
}
