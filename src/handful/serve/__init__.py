"""Classifiers over HTTP: the service, and the studio page; `pip install 'handful[serve]'`."""
