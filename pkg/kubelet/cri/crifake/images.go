package crifake

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageService is the image client of the fake.
type ImageService struct {
	runtimeapi.ImageServiceClient // nil: calls that the kubelet never makes panic
	r                             *Runtime
}

func (r *Runtime) addImage(name string) *runtimeapi.Image {
	h := fnv.New64a()
	h.Write([]byte(name))
	image := &runtimeapi.Image{
		Id: "sha256:" + strconv.FormatUint(h.Sum64(), 16), RepoTags: []string{name}, Size: 1 << 20,
		Spec: &runtimeapi.ImageSpec{Image: name},
	}
	r.images[name] = image
	return image
}

// imageLocked returns the image with the name or id, or nil. r.mu is held.
func (r *Runtime) imageLocked(name string) *runtimeapi.Image {
	if image := r.images[name]; image != nil {
		return image
	}
	for _, image := range r.images {
		if image.Id == name {
			return image
		}
	}
	return nil
}

// ImageStatus implements the CRI call. For an absent image the answer is empty.
func (s ImageService) ImageStatus(ctx context.Context, in *runtimeapi.ImageStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	if err := s.r.begin(ctx, "ImageStatus", ""); err != nil {
		return nil, err
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: s.r.imageLocked(in.Image.GetImage())}, nil
}

// PullImage implements the CRI call.
func (s ImageService) PullImage(ctx context.Context, in *runtimeapi.PullImageRequest, _ ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	name := in.Image.GetImage()
	if err := s.r.begin(ctx, "PullImage", name); err != nil {
		return nil, err
	}
	if s.r.cfg.Pull != nil {
		if err := s.r.cfg.Pull(name, in.Auth); err != nil {
			if _, ok := status.FromError(err); ok {
				return nil, err
			}
			return nil, status.Error(codes.NotFound, err.Error())
		}
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	image := s.r.images[name]
	if image == nil {
		image = s.r.addImage(name)
	}
	return &runtimeapi.PullImageResponse{ImageRef: image.Id}, nil
}

// ListImages implements the CRI call.
func (s ImageService) ListImages(ctx context.Context, _ *runtimeapi.ListImagesRequest, _ ...grpc.CallOption) (*runtimeapi.ListImagesResponse, error) {
	if err := s.r.begin(ctx, "ListImages", ""); err != nil {
		return nil, err
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	out := &runtimeapi.ListImagesResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.r.images)) {
		out.Images = append(out.Images, s.r.images[name])
	}
	return out, nil
}

// RemoveImage implements the CRI call. An absent image is not an error.
func (s ImageService) RemoveImage(ctx context.Context, in *runtimeapi.RemoveImageRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveImageResponse, error) {
	name := in.Image.GetImage()
	if err := s.r.begin(ctx, "RemoveImage", name); err != nil {
		return nil, err
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	maps.DeleteFunc(s.r.images, func(key string, image *runtimeapi.Image) bool { return key == name || image.Id == name })
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo implements the CRI call. The answer is empty.
func (s ImageService) ImageFsInfo(ctx context.Context, _ *runtimeapi.ImageFsInfoRequest, _ ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, s.r.begin(ctx, "ImageFsInfo", "")
}
