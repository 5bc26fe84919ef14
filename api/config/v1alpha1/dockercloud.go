package v1alpha1

import (
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// KindDockerCloud is the kind of DockerCloud.
const KindDockerCloud = "DockerCloud"

// DockerCloud says how cloud-controller-manager finds the Docker engine whose
// containers the nodes are.
type DockerCloud struct {
	metav1.TypeMeta `json:",inline"`
	Socket          string `json:"socket,omitempty"` // the engine's, where cloud-controller-manager sees it; default /run/podium/docker.sock
}

// DecodeDockerCloud reads a DockerCloud as Decode reads a Cluster; from nothing
// it makes the default.
func DecodeDockerCloud(data []byte) (*DockerCloud, error) {
	c := &DockerCloud{}
	if len(data) == 0 {
		c.Default()
		return c, nil
	}
	return c, decode(data, KindDockerCloud, &c.TypeMeta, c)
}

// Default fills in what is left out.
func (c *DockerCloud) Default() { fill(&c.Socket, "/run/podium/docker.sock") }

// Validate finds everything that is wrong with a defaulted DockerCloud.
func (c *DockerCloud) Validate() (errs field.ErrorList) {
	if !path.IsAbs(c.Socket) {
		errs = append(errs, field.Invalid(field.NewPath("socket"), c.Socket, "must be an absolute path"))
	}
	return errs
}
