{{- define "rowrelay.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "rowrelay.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rowrelay.labels" -}}
{{ include "rowrelay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "rowrelay.image" -}}
{{- $digest := ternary .Values.image.pluginsDigest .Values.image.digest .Values.image.plugins -}}
{{- $tag := .Values.image.tag | default (ternary (print .Chart.AppVersion "-plugins") .Chart.AppVersion .Values.image.plugins) -}}
{{- if $digest }}{{ .Values.image.repository }}@{{ $digest }}{{ else }}{{ .Values.image.repository }}:{{ $tag }}{{ end }}
{{- end }}

{{- define "rowrelay.secret" -}}
{{- if .Values.existingSecret }}{{ .Values.existingSecret }}{{ else if .Values.secrets }}{{ include "rowrelay.name" . }}{{ else }}{{ fail "the relay needs a database: set existingSecret to a Secret of yours, or secrets.database" }}{{ end }}
{{- end }}

{{- /* The content of the Secret. It is empty if the Secret exists already and Helm can't ask the cluster, as in helm template. */}}
{{- define "rowrelay.secrets" -}}
{{- if .Values.existingSecret }}{{ get (lookup "v1" "Secret" .Release.Namespace .Values.existingSecret) "data" | toYaml }}{{ else }}{{ toYaml .Values.secrets }}{{ end }}
{{- end }}

{{- define "rowrelay.scheme" -}}
{{- if get (.Values.config.admin | default dict) "tls" }}https{{ else }}http{{ end }}
{{- end }}
