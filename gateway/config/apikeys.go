package config

// APIKeys are the keys of callers in the simplest case.
type APIKeys struct {
	File string `yaml:"file"` // File with the API keys of callers, made by aepbctl keys; read again when it changes. Has hashes, no secrets. Default: API keys are not taken.
}
