package v1alpha1

import (
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// KindDockerCloud is the kind of DockerCloud.
const KindDockerCloud = "DockerCloud"

// DockerCloud is the configuration of the cloud-controller-manager for nodes
// that are containers of a Docker engine.
type DockerCloud struct {
	metav1.TypeMeta `json:",inline"`
	Socket          string `json:"socket,omitempty"` // path of the engine's socket as cloud-controller-manager sees it; default /run/podium/docker.sock
}

// DecodeDockerCloud is Decode for a DockerCloud. Empty data gives the defaults.
func DecodeDockerCloud(data []byte) (*DockerCloud, error) {
	c := &DockerCloud{}
	if len(data) == 0 {
		c.Default()
		return c, nil
	}
	return c, decode(data, KindDockerCloud, &c.TypeMeta, c)
}

// Default sets the defaults of empty fields.
func (c *DockerCloud) Default() { fill(&c.Socket, "/run/podium/docker.sock") }

// Validate returns all errors of a DockerCloud with its defaults set.
func (c *DockerCloud) Validate() (errs field.ErrorList) {
	if !path.IsAbs(c.Socket) {
		errs = append(errs, field.Invalid(field.NewPath("socket"), c.Socket, "must be an absolute path"))
	}
	return errs
}
