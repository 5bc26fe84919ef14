// Package manager is cloud-controller-manager: it makes the provider that
// --cloud-provider names (providers.go) and runs the controllers for the parts
// that provider has (controllers.go).
package manager
