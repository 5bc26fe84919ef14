package main

import (
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// newCustomServer returns upstream's server of custom resources, as kube-apiserver
// contains it.
func newCustomServer(etcd string, port int, dir string) (*server.GenericAPIServer, error) {
	c, eo, err := newConfig(apiserver.Codecs, etcd, port, dir)
	if err != nil {
		return nil, err
	}
	eo.StorageConfig.Codec = crdoptions.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr).RecommendedOptions.Etcd.StorageConfig.Codec
	if err := eo.ApplyTo(c); err != nil {
		return nil, err
	}
	c.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	c.OpenAPIV3Config = server.DefaultOpenAPIV3Config(generatedopenapi.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(apiserver.Scheme))
	client, err := kubernetes.NewForConfig(c.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	config := apiserver.Config{
		GenericConfig: &server.RecommendedConfig{Config: *c, SharedInformerFactory: informers.NewSharedInformerFactory(client, 0)},
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: crdoptions.NewCRDRESTOptionsGetter(*eo, c.ResourceTransformers, c.StorageObjectCountTracker),
			MasterCount:          1,
			AuthResolverWrapper:  webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, c.LoopbackClientConfig, nil),
		},
	}
	s, err := config.Complete().New(server.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	return s.GenericAPIServer, nil
}
