// Package manager is cloud-controller-manager: it runs the controllers (controllers.go) for
// the parts of the provider (providers.go) that --cloud-provider names.
package manager
