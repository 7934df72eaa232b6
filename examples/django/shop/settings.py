import os
from urllib.parse import unquote, urlparse

SECRET_KEY = "for the example only"
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["orders"]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# The signing secret of the relay's http sink.
SIGNING_SECRET = os.environ.get("SIGNING_SECRET", "whsec_b25seSBmb3IgdGhlIGV4YW1wbGUgYW5kIGl0cyB0ZXN0cw==")

url = urlparse(os.environ.get("DATABASE_URL", "sqlite:shop.db"))  # the same format as rowrelay's
SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": url.path,
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 10,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
    },
}
POSTGRES = {
    "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "HOST": url.hostname, "PORT": url.port,
    "USER": unquote(url.username or ""), "PASSWORD": unquote(url.password or ""),
}
DATABASES = {"default": SQLITE if url.scheme == "sqlite" else POSTGRES}
